"""The certificate of a program file, `MODEL.pte.cert`: a JSON document."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.patterns import RuleStatus

SUFFIX = ".cert"
_LARGEST = 1 << 24
_CHUNK = 1 << 20
_Name = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CertifiedFile(_Form):
    """A file by its content.

    Attributes:
        name: What it was called, without a directory.
        nbytes: Its size.
        sha256: Of its bytes.
    """

    name: Annotated[str, Field(pattern=r"^[^/\\\x00]{1,255}$")]
    nbytes: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def of(cls, path: Path) -> CertifiedFile:
        """Return what identifies a file.

        Raises:
            OSError: It cannot be read.
        """
        digest, nbytes = hashlib.sha256(), 0
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                nbytes += len(chunk)
        return cls(name=path.name, nbytes=nbytes, sha256=digest.hexdigest())


class CertifiedPass(_Form):
    """A stage of a pipeline, or a pass that was applied without one.

    Attributes:
        pipeline: File of the pipeline; nothing for a pass of the user.
        number: Place of the stage.
        name: What it is called.
        runs: How often it worked: once for each method and attempt.
        changed: How often it changed the program.
    """

    pipeline: _Name
    number: _Name
    name: _Name
    runs: _Count
    changed: _Count


class CertifiedRule(_Form):
    """A rule that was applied.

    Attributes:
        rule: Its id.
        book: Name of the shipped book, or the file.
        hash: Of all that says what it means.
        status: What was known of it, as in `RuleStanding`.
        applied: How often.
        samples: Trials in which pattern and replacement agreed.
        seed: Of these trials.
        ranks: What was proved: for which ranks.
        arithmetic: And how results agree.
        digest: Of the equations that the solver confirmed.
    """

    rule: _Name
    book: _Name
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]
    status: RuleStatus
    applied: Annotated[int, Field(ge=1)]
    samples: _Count = 0
    seed: _Count | None = None
    ranks: Annotated[str, Field(max_length=2000)] = ""
    arithmetic: Literal["", "free", "bits", "zeros", "reals"] = ""
    digest: Annotated[str, Field(max_length=64)] = ""


class CertifiedCheck(_Form):
    """A verifier.

    Attributes:
        name: What it is called.
        of: What it verified: a pipeline's result, a method, or the file.
        findings: Codes of what it found; none if it passed.
    """

    name: _Name
    of: _Name
    findings: tuple[_Name, ...] = ()


class FileCertificate(_Form):
    """What made a program file.

    Attributes:
        certificate: Version of the form.
        exirkit: Version of exirkit.
        torch: Version of torch.
        program: The file.
        data: Data files that belong to it.
        delegates: Backends of its delegates by method; what they compiled is beyond the certificate.
        passes: In the order in which they worked first. Attempts that were given up are among them.
        rules: That were applied, by id.
        verifiers: In the order in which they worked.
    """

    certificate: Literal[1] = 1
    exirkit: _Name
    torch: _Name
    program: CertifiedFile
    data: tuple[CertifiedFile, ...] = ()
    delegates: dict[_Name, tuple[_Name, ...]] = {}
    passes: tuple[CertifiedPass, ...] = ()
    rules: tuple[CertifiedRule, ...] = ()
    verifiers: tuple[CertifiedCheck, ...] = ()

    def text(self) -> str:
        """Return the file: the same for the same lowering."""
        parts = []
        for key, value in self.model_dump(mode="json").items():
            entries = [json.dumps(one) for one in value] if isinstance(value, list) else []
            text = "[\n  " + ",\n  ".join(entries) + "\n ]" if entries else json.dumps(value)
            parts.append(f' "{key}": {text}')
        return "{\n" + ",\n".join(parts) + "\n}\n"


def certificate_file(program: str | os.PathLike[str]) -> Path:
    """Return where the certificate of a program file is: `MODEL.pte.cert` beside `MODEL.pte`."""
    path = Path(program)
    return path.with_name(path.name + SUFFIX)


def read_certificate(path: str | os.PathLike[str]) -> FileCertificate:
    """Read the certificate of a program file.

    Raises:
        ModelError: EK781, it is none.
        OSError: It cannot be read.
    """
    with Path(path).open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise _no_certificate(path, f"it has more than {_LARGEST} bytes")
    try:
        return FileCertificate.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _no_certificate(path, f"{where}: {first['msg']}" if where else str(first["msg"])) from None


def _no_certificate(path: str | os.PathLike[str], why: str) -> ModelError:
    message = f"this is not a certificate of a program file: {why}"
    return ModelError([Diagnostic.of("EK781", message, location=Location(file=os.fspath(path)))])
