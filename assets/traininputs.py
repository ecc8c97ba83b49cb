"""What a training run reads: brought from a bucket to a folder, and pinned by its manifests.

A run file names tokenizer, and plan or shards, by paths below the storage root; those are the keys
that are mirrored. Absolute paths are files of this machine and left alone. What is wrong with a run
file is told by `training.config`, which reads it next.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from pipeline.dataset import POINTER, manifest_key, read_manifest
from pipeline.errors import ContractError, UsageError
from pipeline.manifest import Manifest
from pipeline.mill import Mill
from pipeline.store import Store, check_key
from training.config import PATHS, RunConfig
from training.saving.files import write_text
from training.shards import checksum

if TYPE_CHECKING:
    from resources.mirror import Mirror
    from resources.tracking import DatasetInput

PINS = "inputs.json"
"""In the folder of a run: the manifests that it reads."""


@dataclass(frozen=True)
class RunInputs:
    """The files of one bucket that runs read."""

    mirror: "Mirror"

    def bring(self, name: str, *, shards: bool) -> None:
        """Run file, tokenizer, plan and, if asked for, every shard, as they are in the bucket now.

        Raises UsageError where the bucket lacks one, DamagedPartError where a shard is damaged.
        """
        prefixes = self._named(_mapping(self._small(f"runs/{name}.yaml"), yaml.safe_load))
        if shards:
            self._shards(prefixes, ("bin", "idx"))

    def bring_indices(self, run: RunConfig) -> None:
        """What says where the samples of a run are, its paths below the mirror: no tokens.

        Raises as `bring`.
        """
        given = run.model_dump(mode="json", include={*PATHS, "shards"})
        below = {name: self._key(value) for name, value in given.items() if name != "shards"}
        prefixes = self._named(below | {"shards": [self._key(p) for p in given["shards"]]})
        self._shards(prefixes, ("idx",))

    def _key(self, path: str | None) -> str | None:
        """The key of a file of the mirror; another path as it is."""
        inside = path is not None and Path(path).is_relative_to(self.mirror.folder)
        return Path(path).relative_to(self.mirror.folder).as_posix() if path and inside else path

    def _named(self, given: dict[str, Any]) -> list[str]:
        """Bring tokenizer and plan as a run file names them; the prefixes of its shards."""
        if tokenizer := key_of(given.get("tokenizer")):
            self._small(tokenizer)
        prefixes = []
        if plan := key_of(given.get("plan")):
            prefixes += self._plan(plan, given.get("data_root"))
        places = given.get("shards") or []
        for place in [places] if isinstance(places, str) else places:
            if key := key_of(place):
                prefixes += self._place(key)
        return prefixes

    def _small(self, key: str) -> bytes:
        try:
            return self.mirror.bring(key)
        except FileNotFoundError as error:
            message = f"{self.mirror.store.url}/{key} is not there"
            hint = "materialise it, or correct the run file"
            raise UsageError(message, hint=hint) from error

    def _plan(self, key: str, data_root: Any) -> list[str]:
        """Bring a plan and its earlier versions; the prefixes of its shards."""
        place = PurePosixPath(key)
        plan = _mapping(self._small(key))
        for info in self.mirror.store.list(f"{place.with_name(place.stem.partition('-')[0])}-"):
            if info.key.endswith(".json"):  # training names the one to go on with
                self.mirror.bring(info.key)
        paths = [str(one["path"]) for one in plan.get("shards", []) if "path" in one]
        if not paths or (data_root is not None and key_of(data_root) is None):
            return []
        bases = [PurePosixPath(key_of(data_root) or "")] if data_root else [*place.parents][:3]
        there = (b for b in bases if self.mirror.store.exists(str(b / f"{paths[0]}.json")))
        base = next(there, PurePosixPath())
        return [str(base / path) for path in paths]

    def _place(self, key: str) -> list[str]:
        """The prefixes that one entry of `shards` means, as `training.plan.expand` has it."""
        store: Store = self.mirror.store
        if store.exists(f"{key}/{POINTER}"):
            manifest = read_manifest(store.child(key))
            self.mirror.bring(f"{key}/{manifest_key(manifest.hash)}")
            self.mirror.bring(f"{key}/{POINTER}")
            found = [f"{key}/{entry.path}" for entry in manifest.content.parts]
        else:
            inside = len(key) + 1
            found = [one.key for one in store.list(f"{key}/") if "/" not in one.key[inside:]]
            for ending in ("bin", "idx"):
                for stray in (self.mirror.folder / key).glob(f"*.{ending}"):
                    if f"{key}/{stray.name}" not in found:
                        stray.unlink()
        shards = [one.removesuffix(".bin") for one in found if one.endswith(".bin")]
        return shards or [_without_ending(key)]

    def _shards(self, prefixes: Sequence[str], endings: Sequence[str]) -> None:
        """Bring shards: sidecars whole, tokens and indices by the checksums in them."""
        with ThreadPoolExecutor(self.mirror.store.config.parallel) as pool:
            sidecars = pool.map(lambda prefix: self._small(f"{prefix}.json"), prefixes)
        told: dict[str, str] = {}
        for prefix, text in zip(prefixes, sidecars, strict=True):
            checksums = _mapping(text).get("checksums", {})
            if not {"bin", "idx"} <= checksums.keys():
                message = f"{self.mirror.store.url}/{prefix}.json is no sidecar of a shard"
                raise ContractError(message, hint="materialise token_shards again")
            told |= {f"{prefix}.{ending}": str(checksums[ending]) for ending in endings}
        self.mirror.bring_verified(told)


def key_of(value: Any) -> str | None:
    """The key that a path of a run file means; None for an absolute path, or for no path at all."""
    if not isinstance(value, str) or value.startswith("/"):
        return None
    try:
        return check_key(str(PurePosixPath(value)))
    except ValueError as error:
        message = f"the run file names {value!r}, which is no place in the store"
        raise UsageError(message, hint="paths start at the storage root") from error


def _without_ending(key: str) -> str:
    place = PurePosixPath(key)
    return str(place.with_suffix("")) if place.suffix in {".bin", ".idx", ".json"} else key


def _mapping(text: bytes, parse: Callable[[bytes], Any] = json.loads) -> dict[str, Any]:
    """A mapping in a file; empty where it is none, which its reader then tells."""
    try:
        found = parse(text)
    except (ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def dataset_inputs(mill: Mill, root: Path, run: RunConfig) -> list["DatasetInput"]:
    """The manifests behind a training: tokenizer, and plan or shards as the run file names them.

    `root`: the folder that the paths of the run start from. A plan brings the shards of all corpora
    in it.
    """
    from resources.tracking import DatasetInput

    found: dict[str, str] = {}
    if tokenizer := _maker(mill, "tokenizer", run.tokenizer):
        found["tokenizer"] = tokenizer.hash
    if run.plan is not None and (plan := _maker(mill, "mixture", run.plan)):
        found["mixture"] = plan.hash
        named = [ref for ref in plan.content.inputs if ref.asset and ref.partition and ref.hash]
        found |= {f"{ref.asset}/{ref.partition}": str(ref.hash) for ref in named}
    for place in run.shards:
        shards = root / "token_shards"
        corpus = place.relative_to(shards).parts[:1] if place.is_relative_to(shards) else ()
        if corpus and (made := mill.find("token_shards", corpus[0])):
            found[f"token_shards/{corpus[0]}"] = made.hash
    return [DatasetInput(n, digest, mill.root.child(n).url) for n, digest in sorted(found.items())]


def _maker(mill: Mill, asset: str, file: Path) -> Manifest | None:
    """The manifest of an asset whose one file this is, the current one first; None if none is."""
    store, told = mill.folder(asset), checksum(file)
    hashes = (PurePosixPath(info.key).stem for info in store.list("manifests/"))
    others = (read_manifest(store, name) for name in hashes)
    for manifest in itertools.chain([mill.find(asset)], others):
        if manifest and manifest.content.parts and manifest.content.parts[0].checksum == told:
            return manifest
    return None


def pin_inputs(inputs: Sequence["DatasetInput"], out: Path) -> None:
    """Name the manifests that a run reads in its folder, so that `gristmill prune` keeps them.

    Those of earlier starts stay named: their checkpoints were made of them.
    """
    file = out / PINS
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    now = [{"name": one.name, "manifest": one.digest} for one in inputs]
    out.mkdir(parents=True, exist_ok=True)
    merged = [*before, *(one for one in now if one not in before)]
    write_text(file, json.dumps(merged, indent=1) + "\n")
