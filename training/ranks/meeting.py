"""Lets the ranks of one attempt find each other, and nobody else, in the agents' store.

A restarted rank must not read the address of a dead one: with gloo and a store without prefix 2 of
4 jobs never recovered. The agents count restarts each by itself (a change of members does not count
at all), so their number is no prefix that all ranks know. Here the first rank opens a numbered
meeting, the others enter their names, and it confirms the names it read: who is confirmed has met
the living. The meeting's number is the prefix of everything after.
"""

from __future__ import annotations

import json
import time
import uuid
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store

from training.errors import LostRanksError

POLL_SECONDS = 0.05


def meet(store: Store, rank: int, size: int, seconds: float) -> Store:
    """A part of the store that belongs to this attempt, once all `size` ranks are there.

    Raises LostRanksError after `seconds`, at the first rank with the numbers of those absent.
    """
    store.set_timeout(timedelta(seconds=seconds))
    deadline = time.monotonic() + seconds
    number = _open(store, size, deadline) if rank == 0 else _enter(store, rank, deadline, seconds)
    return PrefixStore(f"meeting-{number}", store)


def _open(store: Store, size: int, deadline: float) -> int:
    number = int(store.add("meetings", 1))
    store.set("meeting", str(number))
    names: dict[int, str] = {}
    while len(names) < size - 1:
        for rank in set(range(1, size)) - set(names):
            if store.check([key := f"name/{number}/{rank}"]):
                names[rank] = store.get(key).decode()
        if time.monotonic() > deadline:
            absent = sorted(set(range(1, size)) - set(names))
            message = f"ranks {absent} of {size} did not appear"
            raise LostRanksError(message, hint="see the ends of their logs; launch.join_seconds")
        time.sleep(POLL_SECONDS)
    store.set(f"confirmed/{number}", json.dumps(sorted(names.values())))
    return number


def _enter(store: Store, rank: int, deadline: float, seconds: float) -> int:
    name, entered = uuid.uuid4().hex, 0
    while time.monotonic() < deadline:
        number = int(store.get("meeting")) if store.check(["meeting"]) else 0
        if number and number != entered:
            store.set(f"name/{number}/{rank}", name)
            entered = number
        key = f"confirmed/{number}"
        if number and store.check([key]) and name in json.loads(store.get(key)):
            return number
        time.sleep(POLL_SECONDS)
    message = f"rank {rank} met no first rank within {seconds:g} s"
    raise LostRanksError(message, hint="see the end of its log; launch.join_seconds")
