"""What files are made of, where their fields are, and what damage does to them."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from struct import unpack_from

import pytest

from exirkit.emit import Kind, Program, layout_of, read_program
from exirkit.fuzz.loader import Finding, LoaderFuzzing, seed_files
from exirkit.fuzz.loader.contract import Bounds, Watch, load
from exirkit.fuzz.loader.editing import edit_program, rebuilt
from exirkit.fuzz.loader.ledger import Ledger, slot_of
from exirkit.fuzz.loader.mutator import Mutator
from exirkit.fuzz.loader.sites import Role, find_sites
from exirkit.ir import UsageError

FILES = seed_files()
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.pte"))


def end_of(data: bytes) -> str:
    outcome = load(data, Bounds(), lambda _name: None)
    if outcome.error is not None:
        raise outcome.error
    return outcome.name


def test_what_was_found_once() -> None:
    for path in REGRESSIONS:
        assert end_of(path.read_bytes()), path


@pytest.mark.parametrize("name", FILES)
def test_undamaged_files_load(name: str) -> None:
    assert end_of(FILES[name]) == ("EK621" if name == "delegates" else "loaded")
    assert len(FILES[name]) < 2000


def test_together_they_have_all_of_the_schema() -> None:
    seen: set[str] = set()
    for data in FILES.values():
        sites = find_sites(data)
        seen |= {site.name for listed in sites.by_role.values() for site in listed}
        assert all(sites.by_role[role] for role in Role if role is not Role.HEADER)
    wanted, layouts = set(), [layout_of(Program)]
    for layout in layouts:
        wanted |= {each.name for each in layout.fields}
        layouts += [
            table
            for each in layout.fields
            for table in each.tables
            if table not in layouts and each.kind is not Kind.BLOB
        ]
    # Zeros and empty texts are not written; damage to vtables makes these fields appear.
    absent = wanted - seen
    assert absent <= {
        "version", "requires_grad", "storage_offset", "layout", "memory_offset_high", "device_type", "device_index",
        "mutable_data_segments_idx", "storage", "data", "overload", "inputs", "outputs",
    }  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_sites_are_what_the_reader_reads(name: str) -> None:
    data = FILES[name]
    sites = find_sites(data)
    sizes = [unpack_from("<i", data, site.at)[0] for site in sites.by_role[Role.NUMBER] if site.name == "sizes"]
    program = read_program(data).program
    tensors = [
        each.val for plan in program.execution_plan for each in plan.values if type(each.val).__name__ == "Tensor"
    ]
    assert sorted(sizes) == sorted(size for tensor in tensors for size in tensor.sizes)  # type: ignore[union-attr]
    assert all(0 <= site.at < len(data) for listed in sites.by_role.values() for site in listed)


def test_sites_of_anything() -> None:
    rng = random.Random(1)
    for nbytes in range(300):
        find_sites(rng.randbytes(nbytes))
    for data in FILES.values():
        for end in range(0, len(data), 13):
            find_sites(data[:end])


@pytest.mark.parametrize("name", FILES)
def test_rebuilt_files_say_the_same(name: str) -> None:
    data = FILES[name]
    again = read_program(rebuilt(read_program(data), data))
    assert again.program == read_program(data).program
    assert [bytes(one) for one in again.segments] == [bytes(one) for one in read_program(data).segments]


def test_edited_files_are_well_formed_mostly() -> None:
    rng, files = random.Random(1), list(FILES.values())
    edited = [edit_program(rng.choice(files), rng.choice(files), rng) for _ in range(150)]
    ends: Counter[str] = Counter(end_of(data) for data in edited if data is not None)
    assert ends.total() > 100
    assert sum(count for code, count in ends.items() if code >= "EK6") > 40
    assert edit_program(b"no program", files[0], rng) is None


def test_damage_is_of_all_kinds_and_repeats() -> None:
    files = list(FILES.values())
    made = [
        [mutator(data, 4096) for data in files * 20] for mutator in (Mutator(3, files, files), Mutator(3, files, files))
    ]
    assert made[0] == made[1]
    assert all(len(data) <= 4096 for data in made[0])
    ends: Counter[str] = Counter(end_of(data) for data in made[0])
    assert len(ends) > 15


def test_too_much_memory_is_not_an_error_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exirkit.fuzz.loader.contract.limit_addresses", lambda _nbytes: None)
    monkeypatch.setattr("exirkit.fuzz.loader.contract.forget_peak", lambda: None)
    peaks = iter((0, 1 << 20))
    monkeypatch.setattr("exirkit.fuzz.loader.contract.peak_kib", lambda: next(peaks))
    handler = signal.getsignal(signal.SIGPROF)
    with Watch(Bounds()) as watch:
        outcome = watch.load(FILES["smallest"], lambda _name: None)
        assert signal.getitimer(signal.ITIMER_PROF)[1] > 0
    assert "1024 MiB" in str(outcome.error)
    # A clock that goes on kills the process at its end.
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert signal.getsignal(signal.SIGPROF) == handler


def test_ledgers_list_what_is_pending(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "one.ledger") as ledger:
        ledger.begin(b"first")
        assert ledger.end(slot_of("EK506"), 7) == 1
        ledger.begin(b"second")
    with Ledger(tmp_path / "one.ledger") as ledger:
        assert ledger.pending == b"second"
        assert ledger.outcomes == {"EK506": 1}
        assert ledger.executions == 1


def test_one_finding_of_each_cause_is_kept(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        try:
            list(data)[7]
        except IndexError as error:
            Finding.of(error).save(tmp_path, data)
    assert [path.read_bytes() for path in tmp_path.glob("*.pte")] == [b"one"]


def test_a_state_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(UsageError) as caught:
        LoaderFuzzing(tmp_path / "state.json").prepare()
    assert caught.value.code == "EK892"
