"""What half of a link's bandwidth changes is said with an answer that depends on it."""

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.links import find_link
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.server import RooflineServer


def server(ways: int, link: str) -> RooflineServer:
    model, hardware = find_model("llama-3-8b"), find_hardware("h100")
    return RooflineServer(
        Deployment(model, hardware, parallel=Parallel(ways, link=find_link(link)))
    )


def test_the_answer_of_several_devices_names_their_link() -> None:
    *_, link, change = server(4, "dgx-h100").describe()
    assert link == "  link dgx-h100: 445 GB/s, 2.5 us"
    assert change.startswith("    at half the bandwidth: TPOT of 64 decodes +")
    assert len(change) <= 100


def test_a_slow_link_matters_more() -> None:
    changes = [
        float(server(4, link).describe()[-1].rpartition("2,048 +")[2].removesuffix(" %"))
        for link in ("dgx-h100", "pcie-5-pair", "pcie-4-host")
    ]
    assert changes == sorted(changes)
    assert 0 < changes[0] < changes[-1] < 100


def test_one_device_has_no_link() -> None:
    assert not any("link" in line for line in server(1, "dgx-h100").describe())
