"""What the columns of an uploaded table hold: shown with its first rows, to be confirmed."""

from collections.abc import Mapping

import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario import uploads
from servetwin.app.words import asset_table
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.tables import mapping

_LABELS: dict[str, dict[str, str]] = asset_table("words.yaml")["columns"]
_TEXT_OF = {"prompt_tokens": "prompt", "output_tokens": "answer"}
_PROBLEM = "column_dialog_problem"


def ask_for_columns() -> None:
    """Open the dialog where the columns of an uploaded table are not confirmed."""
    table = uploads.asked_table()
    if table is not None:
        st.dialog(f"Columns of {table.name}", width="large", on_dismiss=uploads.forget_asked_table)(
            _ask
        )()


def _ask() -> None:
    table = uploads.asked_table()
    if table is None:
        st.rerun()
        return
    for question in table.recognition.questions:
        st.warning(escaped(question))
    st.caption(f"First rows of {table.name}")
    st.dataframe(list(table.sample[: uploads.SHOWN_ROWS]), hide_index=True)
    columns = _chosen(table)
    missing = [mapping.WORDS[names[0]] for names in mapping.missing_of(columns)]
    if missing:
        st.info(f"Still to choose: {', '.join(missing)}.")
    else:
        st.caption("Parsed preview")
        st.dataframe(table.read_rows(columns), hide_index=True)
        st.caption("The same on the command line:")
        st.code(f"{mapping.OPTION} {mapping.mapping_text(columns)}", language=None, wrap_lines=True)
    if problem := st.session_state.get(_PROBLEM):
        st.error(escaped(problem))
    st.button(
        "Use these columns", type="primary", disabled=bool(missing), on_click=_use,
        args=(table, columns),
    )  # fmt: skip


def _chosen(table: uploads.OwnTable) -> dict[str, str]:
    """Draw a choice for each quantity; return the mapping."""
    proposed = {
        mapping.quantity_of(key): (key, name) for key, name in table.recognition.proposed.items()
    }
    columns: dict[str, str] = {}
    needed = _LABELS["needed"].items()
    for (quantity, label), place in zip(needed, st.columns(len(needed)), strict=True):
        with place:
            columns |= _choice(table, quantity, label, proposed)
    with st.expander("More columns"):
        for quantity, label in _LABELS["more"].items():
            columns |= _choice(table, quantity, label, proposed)
    drawn = {*_LABELS["needed"], *_LABELS["more"], *_TEXT_OF.values()}
    rest = {
        k: n for k, n in table.recognition.proposed.items() if mapping.quantity_of(k) not in drawn
    }
    return {**columns, **{k: name for k, name in rest.items() if name not in columns.values()}}


def _choice(
    table: uploads.OwnTable, quantity: str, label: str, proposed: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    text = _TEXT_OF.get(quantity, quantity)
    key, before = proposed.get(quantity) or proposed.get(text) or ("", None)
    place = table.names.index(before) if before else None
    name = st.selectbox(
        label, table.names, place, key=f"column_{quantity}", placeholder="not in this table"
    )
    if name is None:
        return {}
    if quantity == "arrival" or quantity in ("ttft", "e2e"):
        names = _LABELS["forms"]
        forms = [form for form in names if form in mapping.UNITS_S or quantity == "arrival"]
        form = st.selectbox(
            f"{label} in", forms, forms.index(mapping.form_of(key)) if key else 0,
            format_func=names.__getitem__, key=f"form_{quantity}",
        )  # fmt: skip
        return {f"{quantity}_{form}" if form else quantity: name}
    if quantity in _TEXT_OF and table.is_text(name):
        return {text: name}
    return {quantity: name}


def _use(table: uploads.OwnTable, columns: Mapping[str, str]) -> None:
    st.session_state[_PROBLEM] = None
    try:
        uploads.add_table(table, mapping.mapping_text(columns))
    except ServetwinError as error:
        st.session_state[_PROBLEM] = str(error)
        return
    uploads.forget_asked_table()
