"""Garbage is not sought while modules are imported, and never among them."""

import gc

import pytest

from servetwin.app.command import lasting_imports


def test_what_is_made_while_importing_is_sought_no_more() -> None:
    before = gc.get_freeze_count()
    try:
        with lasting_imports():
            made: list[list[int]] = [[] for _ in range(1000)]
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_collection_goes_on_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError), lasting_imports():
        raise ImportError
    assert gc.isenabled()
