"""Bundles of programs: what is read is what was written, drawn values have the statistics, and nothing is run."""

from __future__ import annotations

import json
import pickle
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram

from exirkit import UsageError
from exirkit.ir import pytree
from exirkit.program import read_bundle, write_bundle


class Model(torch.nn.Module):
    """Tied weights, state, constants, odd strides, control flow and inputs of several kinds."""

    count: torch.Tensor
    wide: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("wide", torch.randn(40, 6).t() * 3 + 5)
        self.order = torch.tensor([5, 4, 3, 2, 1, 0])

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, float], flag: bool) -> dict[str, torch.Tensor]:
        self.count.add_(1)
        y = self.second(self.first(x)[:, self.order] * pair[1] + pair[0])
        z = torch.cond(y.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (y,))
        return {"y": y @ self.wide, "z": z + (1 if flag else 0)}


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    torch.manual_seed(3)
    inputs = (torch.randn(3, 6), (torch.ones(6), 0.1), True)
    rows = Dim("rows", min=2, max=9)
    with torch.no_grad():
        return torch.export.export(Model().eval(), inputs, dynamic_shapes=({0: rows}, (None, None), None))


def leaves(program: ExportedProgram) -> list[Any]:
    """Return results for the example inputs."""
    assert program.example_inputs is not None
    args, kwargs = program.example_inputs
    with torch.no_grad():
        found: list[Any] = pytree.tree_leaves(program.module()(*args, **kwargs))
    return found


def test_with_weights_it_is_the_same_program(program: ExportedProgram, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    write_bundle(path, {"run": program}, stores_weights=True, facts={"a": [1]}, files={"b.txt": b"c"})
    bundle = read_bundle(path)
    assert (bundle.facts, bundle.files, list(bundle.programs)) == ({"a": [1]}, {"b.txt": b"c"}, ["run"])
    found = bundle.programs["run"]
    assert found.state_dict.keys() == program.state_dict.keys()
    for name, value in program.state_dict.items():
        other = found.state_dict[name]
        assert torch.equal(value, other)
        assert (type(value), value.stride(), value.dtype) == (type(other), other.stride(), other.dtype)
    assert found.state_dict["first.weight"] is found.state_dict["second.weight"]
    assert [str(one) for one in found.range_constraints.values()] == [
        str(one) for one in program.range_constraints.values()
    ]
    for left, right in zip(leaves(found), leaves(program), strict=True):
        assert torch.equal(left, right)


def test_drawn_values_have_the_statistics(program: ExportedProgram, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.zip", "two.zip")]
    for path in paths:
        write_bundle(path, {"run": program}, seed=7)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    found, again = (read_bundle(path).programs["run"] for path in paths)
    wide, other = program.state_dict["wide"], found.state_dict["wide"]
    assert not torch.equal(wide, other)
    assert torch.equal(other, again.state_dict["wide"])
    assert (other.min(), other.max()) == (wide.min(), wide.max())
    assert abs(float(other.mean() - wide.mean())) < 1
    assert abs(float(other.std() - wide.std())) < 1
    # Constants of the program are not weights: an index has to stay one.
    (order,) = (value for value in found.constants.values() if value.dtype is torch.int64)
    assert order.tolist() == [5, 4, 3, 2, 1, 0]
    assert found.state_dict["first.weight"] is found.state_dict["second.weight"]
    values = wide.flatten().numpy().tobytes()
    assert values[:64] not in b"".join(
        zipfile.ZipFile(paths[0]).read(one) for one in zipfile.ZipFile(paths[0]).namelist()
    )
    assert all(one.shape == two.shape for one, two in zip(leaves(found), leaves(program), strict=True))


@pytest.mark.parametrize("part", ["state", "inputs"])
def test_no_more_is_drawn_than_the_program_has(
    program: ExportedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    path, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    write_bundle(path, {"run": program})
    document = json.loads(zipfile.ZipFile(path).read("bundle.json"))
    described = document["programs"]["run"][part]
    one = described["wide"] if part == "state" else described[0]
    one["shape"] = [1 << 28, one["shape"][1]]
    rewritten(path, bad, "bundle.json", lambda _: json.dumps(document).encode())
    monkeypatch.setattr(torch, "randn", lambda *_, **__: pytest.fail("values were drawn"))
    with pytest.raises(UsageError, match="has the sizes") as error:
        read_bundle(bad)
    assert error.value.code == "EK772"


DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64)
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 0, 2), (70,), (13, 11))


class Held(torch.nn.Module):
    """A model with a buffer of every dtype and shape."""

    def __init__(self) -> None:
        super().__init__()
        for at, (dtype, shape) in enumerate((dtype, shape) for dtype in DTYPES for shape in SHAPES):
            values = (torch.arange(torch.Size(shape).numel()) % 5).to(dtype)
            if dtype.is_floating_point and len(values) > 2:
                values[1], values[2] = float("nan"), float("inf")
            self.register_buffer(f"held_{at}", values.reshape(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one in self.buffers():
            x = x + one.to(torch.float32).sum()
        return x


class UnderscoredNames(torch.nn.Module):
    """Operators whose names have two underscores: those of Python's operators, and one within a name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = torch.ops.aten.__lshift__.Scalar(x, 1)
        return torch.ops.aten.linalg__powsum((shifted & x).float()) + (x ^ 3)


def test_names_with_two_underscores(tmp_path: Path) -> None:
    program = torch.export.export(UnderscoredNames(), (torch.arange(4),))
    write_bundle(tmp_path / "bundle.zip", {"f": program})
    found = read_bundle(tmp_path / "bundle.zip").programs["f"]
    targets = [str(node.target) for node in program.graph.nodes]
    assert [str(node.target) for node in found.graph.nodes] == targets
    assert {"aten.__lshift__.Scalar", "aten.__and__.Tensor"} <= {*targets}


def test_every_dtype_and_shape(tmp_path: Path) -> None:
    model = Held()
    program = torch.export.export(model, (torch.ones(2),))
    for stored in (False, True):
        write_bundle(tmp_path / "bundle.zip", {"f": program}, stores_weights=stored)
        found = read_bundle(tmp_path / "bundle.zip").programs["f"].state_dict
        for name, value in model.named_buffers():
            other = found[name]
            assert (other.dtype, other.shape) == (value.dtype, value.shape)
            assert int(other.isnan().sum()) == int(value.isnan().sum())
            if stored:
                assert torch.equal(other.nan_to_num(), value.nan_to_num())


def rewritten(source: Path, target: Path, member: str, change: Callable[[bytes], bytes]) -> None:
    """Copy a bundle with one member changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for one in old.namelist():
            new.writestr(one, change(old.read(one)) if one == member else old.read(one))


@pytest.mark.parametrize(
    "names",
    [
        ("torch.ops.aten.sin.default", "torch.load"),
        ("torch.ops.aten.sin.default", "torch.ops.aten.__class__"),
        ("torch.ops.aten.sin.default", "torch.ops.aten.sin.__call__"),
        ("torch.ops.aten.sin.default", "torch.ops.__class__.__and__"),
        ("torch.ops.aten.sin.default", "torch.ops.aten.__and__.__func__"),
        ("torch.ops.aten.sin.default", "torch.ops.no_such.operator"),
        ("torch.ops.aten.sin.default", "#os.system"),
        ("Symbol(", "__import__("),
        ("positive=True", "positive=exit()"),
        ("positive=True", "positive=(1).__class__"),
        ('"guards_code": []', '"guards_code": ["print(1)"]'),
    ],
)
def test_what_a_bundle_must_not_have(program: ExportedProgram, names: tuple[str, str], tmp_path: Path) -> None:
    path, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    write_bundle(path, {"run": program})
    text = zipfile.ZipFile(path).read("programs/run.json").decode()
    assert names[0] in text
    rewritten(path, bad, "programs/run.json", lambda data: data.decode().replace(*names).encode())
    with pytest.raises(UsageError) as error:
        read_bundle(bad)
    assert error.value.code == "EK772"


def test_damaged_bundles_give_one_error_and_nothing_is_unpickled(
    program: ExportedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("something was unpickled")

    path, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    write_bundle(path, {"run": program}, stores_weights=True)
    monkeypatch.setattr(torch, "load", forbidden)
    monkeypatch.setattr(pickle, "loads", forbidden)
    monkeypatch.setattr(pickle, "load", forbidden)
    read_bundle(path)
    drawn = random.Random(5)
    data = path.read_bytes()
    document = json.loads(zipfile.ZipFile(path).read("bundle.json"))
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(drawn.randrange(1, 4)):
            broken[drawn.randrange(len(broken))] = drawn.randrange(256)
        bad.write_bytes(bytes(broken[: drawn.choice((len(broken), drawn.randrange(len(broken))))]))
        # A damaged name of a member leaves every check sum right: such a bundle is read or rejected.
        with pytest.raises(UsageError, match="EK772") if not _is_readable(bad) else suppress(UsageError):
            read_bundle(bad)
    for name in document["programs"]["run"]["state"]:
        for key, value in (("shape", [1 << 40]), ("stride", [1 << 30, 1]), ("dtype", "load"), ("stored", 99)):
            changed = json.loads(json.dumps(document))
            changed["programs"]["run"]["state"][name][key] = value
            text = json.dumps(changed).encode()
            rewritten(path, bad, "bundle.json", lambda _, text=text: text)  # type: ignore[misc]
            if "same" in changed["programs"]["run"]["state"][name]:
                continue
            with pytest.raises(UsageError, match="EK772"):
                read_bundle(bad)


def _is_readable(path: Path) -> bool:
    """Return whether all members of a zip file are whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:
        return False
