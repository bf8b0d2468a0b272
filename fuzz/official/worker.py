"""The disposable half: runs programs on the official runtime, in a process of its own.

The process loads the libraries once and then forks; the child answers until the runtime kills it, the parent reports
how it died and forks the next one, which starts in milliseconds. Frames go through standard input and output; whatever
the runtime prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .wire import Header, describe, pack, restore, unpack

MEMORY_LIMIT_BYTES = 16 << 30

Reply = tuple[Header, list[bytes]]


class RejectedError(Exception):
    """The runtime rejected the file; `kind` is the stage."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


def load_native() -> Any:
    """Import the bindings alone: the package around them imports the whole exporter, ten seconds of it."""
    importlib.import_module("executorch.extension.pybindings.data_loader")
    native = importlib.import_module("executorch.extension.pybindings._C")
    # Kernels of quantized programs lie in a library of their own, which not every wheel has.
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("executorch.kernels.quantized")
    return native


def load_program(native: Any, request: Header, blobs: list[bytes]) -> Any:
    """Load the program that the request names or carries, with its data file if it has one."""
    check = native.Verification.InternalConsistency
    with contextlib.ExitStack() as stack:
        options = {"program_verification": check}
        if "data" in request:
            # The bindings of programs take data by path alone; the file is mapped before they return.
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".ptd"))
            file.write(blobs[request["data"]])
            file.flush()
            options["data_path"] = file.name
        try:
            if "path" in request:
                return native._load_program(request["path"], **options)
            return native._load_program_from_buffer(blobs[request["program"]], **options)
        except Exception as error:
            raise RejectedError("load-error", f"{type(error).__name__}: {error}") from error


def load_method(program: Any, name: str) -> Any:
    """Load one method of a program."""
    try:
        return program.load_method(name)
    except Exception as error:
        raise RejectedError("load-error", f"{type(error).__name__}: {error}") from error


def answer_run(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Run all calls on one loaded method."""
    program = load_program(native, request, blobs)
    method = load_method(program, request["method"])
    calls: list[list[Header]] = []
    results: list[bytes] = []
    for call in request["calls"]:
        inputs = [restore(value, blobs) for value in call]
        try:
            outputs = method(inputs)
        except Exception as error:
            raise RejectedError("execute-error", f"call {len(calls)}: {type(error).__name__}: {error}") from error
        calls.append([describe(value, results) for value in outputs])
    return {"outputs": calls}, results


def answer_calls(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Call methods of a module, which gives each of them memory of its own."""
    try:
        data = blobs[request["data"]] if "data" in request else None
        module = native._load_for_executorch_from_buffer(blobs[request["program"]], data)
    except Exception as error:
        raise RejectedError("load-error", f"{type(error).__name__}: {error}") from error
    outputs: list[list[Header]] = []
    results: list[bytes] = []
    for step in request["steps"]:
        try:
            got = module.run_method(step["method"], [restore(value, blobs) for value in step["inputs"]])
        except Exception as error:
            raise RejectedError("execute-error", f"step {len(outputs)}: {type(error).__name__}: {error}") from error
        outputs.append([describe(value, results) for value in got])
    return {"outputs": outputs}, results


def answer_test_case(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Run one test case of a bundled program and compare its outputs, if it has expected ones."""
    try:
        bundle = native._load_bundled_program_from_buffer(blobs[request["program"]])
    except Exception as error:
        raise RejectedError("load-error", f"{type(error).__name__}: {error}") from error
    tolerances = {name: float.fromhex(request[name]) for name in ("rtol", "atol")}
    try:
        got = bundle.verify_result_with_bundled_expected_output(request["method"], request["index"], **tolerances)
    except Exception as error:
        raise RejectedError("execute-error", f"{type(error).__name__}: {error}") from error
    results: list[bytes] = []
    return {"outputs": [[describe(value, results) for value in got]]}, results


def answer_trace(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Take steps with a module that traces, in a process that ends with that; say how every step ended."""
    results: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        code = _in_a_process(lambda: _trace(native, request, blobs, Path(folder)), request["timeout_s"])
        ends = [json.loads(line) for line in Path(folder, "ends").read_text().splitlines()]
        if code != 0:
            ends.append({"failure": "crash", "text": f"the process ended with {code}"})
        for at, end in enumerate(ends):
            if request["steps"][at] is None and not end:
                results += [Path(folder, f"{at}.{kind}").read_bytes() for kind in ("trace", "values")]
    return {"ends": ends}, results


def _trace(native: Any, request: Header, blobs: list[bytes], folder: Path) -> None:
    """Take steps; note how each of them ended as soon as it did, and what was written by its place."""
    options = {"enable_etdump": True, "debug_buffer_size": request["debug_buffer_nbytes"]}
    data = blobs[request["data"]] if "data" in request else None
    with (folder / "ends").open("w", buffering=1) as ends:
        # Files are read by the first run, which fails then.
        module = native._load_for_executorch_from_buffer(blobs[request["program"]], data, **options)
        for at, step in enumerate(request["steps"]):
            end: Header = {}
            if step is None:
                # A second write and a run after a write end the process: each write has a process of its own.
                files = [str(folder / f"{at}.{kind}") for kind in ("trace", "values")]
                Path(files[1]).touch()
                code = _in_a_process(partial(module.write_etdump_result_to_file, *files), request["timeout_s"])
                if code != 0:
                    end = {"failure": "crash", "text": f"the process that wrote ended with {code}"}
                elif not Path(files[0]).exists():
                    end = {"failure": "execute-error", "text": "no trace was written: no run has begun"}
            else:
                try:
                    module.run_method(step["method"], [restore(value, blobs) for value in step["inputs"]])
                except Exception as error:
                    end = {"failure": "execute-error", "text": f"{type(error).__name__}: {error}"}
            ends.write(json.dumps(end) + "\n")


def _in_a_process(task: Callable[[], object], timeout_s: float) -> int:
    """Do something in a copy of this process, which ends with that; return how it ended, 0 if well."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(math.ceil(timeout_s))
            task()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def answer_session(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Load several methods of one program and take steps with them: set inputs, execute, get outputs."""
    program = load_program(native, request, blobs)
    methods = {name: load_method(program, name) for name in request["methods"]}
    outputs: list[list[Header]] = []
    results: list[bytes] = []
    for place, step in enumerate(request["steps"]):
        method = methods[step["method"]]
        try:
            if step["inputs"] is not None:
                method.set_inputs([restore(value, blobs) for value in step["inputs"]])
            if step["execute"]:
                method.execute()
            if step["outputs"]:
                outputs.append([describe(value, results) for value in method.get_outputs()])
        except Exception as error:
            raise RejectedError("execute-error", f"step {place}: {type(error).__name__}: {error}") from error
    return {"outputs": outputs}, results


def answer_metadata(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Describe every method: its inputs and outputs, `None` for those that are not tensors."""
    program = load_program(native, request, blobs)
    methods: dict[str, Header] = {}
    for index in range(program.num_methods()):
        meta = program.method_meta(program.get_method_name(index))
        methods[meta.name()] = {
            "inputs": [describe_tensor(meta.input_tensor_meta, i) for i in range(meta.num_inputs())],
            "outputs": [describe_tensor(meta.output_tensor_meta, i) for i in range(meta.num_outputs())],
            "attributes": meta.num_attributes(),
        }
    return {"methods": methods}, []


def describe_tensor(read: Callable[[int], Any], index: int) -> Header | None:
    """Describe one input or output."""
    try:
        info = read(index)
    except Exception:  # the binding raises for a value that is not a tensor
        return None
    planned = bool(info.is_memory_planned())
    return {"sizes": list(info.sizes()), "scalar_type": info.dtype(), "nbytes": info.nbytes(), "planned": planned}


def answer_latency(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Time the execution alone, without setting inputs and copying outputs."""
    native._unsafe_reset_threadpool(request["threads"])
    method = load_method(load_program(native, request, blobs), request["method"])
    inputs = [restore(value, blobs) for value in request["inputs"]]
    times: list[int] = []
    try:
        for _ in range(request["warmup"] + request["repeats"]):
            method.set_inputs(inputs)
            start = time.perf_counter_ns()
            method.execute()
            times.append(time.perf_counter_ns() - start)
    except Exception as error:
        raise RejectedError("execute-error", f"{type(error).__name__}: {error}") from error
    return {"latency_ns": times[request["warmup"] :]}, []


def answer_kernels(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """List the kernels and backends of this build."""
    names = {"kernels": sorted(native._get_operator_names()), "backends": native._get_registered_backend_names()}
    return names, []


def answer_sleep(native: Any, request: Header, blobs: list[bytes]) -> Reply:
    """Do nothing for a while, to test the patience of the caller."""
    time.sleep(request["seconds"])
    return {}, []


ANSWERS = {
    "run": answer_run,
    "calls": answer_calls,
    "session": answer_session,
    "test case": answer_test_case,
    "trace": answer_trace,
    "metadata": answer_metadata,
    "latency": answer_latency,
    "kernels": answer_kernels,
    "sleep": answer_sleep,
}


def read_exactly(size: int) -> bytes:
    """Read from standard input without reading ahead: the next child must find the next frame whole."""
    parts: list[bytes] = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(stream: int, frame: bytes) -> None:
    """Write a whole frame."""
    view = memoryview(frame)
    while view:
        view = view[os.write(stream, view) :]


def serve(native: Any, stream: int) -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    native._unsafe_reset_threadpool(1)
    write_all(stream, pack({"ready": os.getpid()}))
    while True:
        try:
            request, blobs = unpack(read_exactly)
        except EOFError:
            return
        signal.alarm(
            math.ceil(request["timeout_s"]) + request.get("grace_s", 30)
        )  # ends this process even if the caller is gone
        try:
            header, results = ANSWERS[request["op"]](native, request, blobs)
        except RejectedError as error:
            header, results = {"failure": error.kind, "text": str(error)}, []
        # Or it would end this process while it waits for the next request, which then had no answer of its own.
        signal.alarm(0)
        write_all(stream, pack({**header, "number": request["number"]}, results))


def limit_resources() -> None:
    """Keep a corrupt program from filling memory and disk, where the system can do that."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


def main() -> int:
    """Fork a child that serves, and another one when it dies."""
    stream = os.dup(1)
    os.dup2(2, 1)
    limit_resources()
    native = load_native()
    while True:
        child = os.fork()
        if child == 0:
            serve(native, stream)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return 0
        write_all(stream, pack({"died": code}))


if __name__ == "__main__":
    sys.exit(main())
