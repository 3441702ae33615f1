"""The environment and its alarms: all that the simulator takes from SimPy.

These tests fail where a version of SimPy lacks what is used of it.
"""

from simpy.events import Event

from servetwin.sim.core.environment import Alarm, Environment

FAR = (1 << 70) + 1
"""A tick that a float cannot hold."""


def test_time_is_exact_in_ticks_that_a_float_cannot_hold() -> None:
    env, rang = Environment(), list[int]()
    Alarm(env, lambda _: rang.append(env.now)).set(FAR)
    Alarm(env, lambda _: rang.append(env.now)).set(FAR + 1)
    env.run()
    assert rang == [FAR, FAR + 1]


def test_of_one_tick_urgent_alarms_ring_first_the_others_as_they_were_set() -> None:
    env, rang = Environment(), list[str]()

    def named(name: str, urgent: bool = False) -> Alarm:
        return Alarm(env, lambda _: rang.append(name), urgent)

    alarms = {name: named(name) for name in ("first", "second")}
    alarms |= {name: named(name, urgent=True) for name in ("urgent a", "urgent b")}
    for name in ("second", "first", "urgent b", "urgent a"):
        alarms[name].set(7)
    env.run()
    assert rang == ["urgent b", "urgent a", "second", "first"]


def test_an_alarm_is_set_again_as_soon_as_it_rings() -> None:
    env, rang = Environment(), list[int]()

    def on_time(event: Event) -> None:
        assert event is alarm
        assert event.processed
        rang.append(env.now)
        if len(rang) < 3:
            alarm.set(env.now + 5)
            assert not alarm.processed

    alarm = Alarm(env, on_time)
    assert alarm.processed
    alarm.set(env.now)
    env.run()
    assert rang == [0, 5, 10]
