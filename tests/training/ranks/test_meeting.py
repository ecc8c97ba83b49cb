from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from training.errors import LostRanksError
from training.ranks.meeting import meet

SIZE = 3


def client(server: TCPStore) -> TCPStore:
    return TCPStore("localhost", server.port, is_master=False, timeout=timedelta(seconds=5))


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def together(server: TCPStore, size: int) -> list[str]:
    """What each rank of an attempt reads where its first rank wrote."""

    def rank(number: int) -> str:
        own = meet(client(server), number, size, 10)
        if number == 0:
            own.set("address", f"of {size}")
        return str(own.get("address").decode())

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, reversed(range(size))))


def test_an_attempt_reads_nothing_of_the_one_before(server: TCPStore) -> None:
    """Three ranks, then two, then three again, on the store of one agent."""
    for size in (SIZE, 2, SIZE, SIZE):
        assert together(server, size) == [f"of {size}"] * size


def test_a_meeting_that_its_first_rank_left_unfinished_is_passed_over(server: TCPStore) -> None:
    with pytest.raises(LostRanksError, match=r"ranks \[1, 2\] of 3 did not appear"):
        meet(client(server), 0, SIZE, 0.3)
    assert together(server, SIZE) == [f"of {SIZE}"] * SIZE


def test_a_rank_without_a_first_one_gives_up(server: TCPStore) -> None:
    assert together(server, 2) == ["of 2"] * 2
    with pytest.raises(LostRanksError, match=r"rank 1 met no first rank within 0\.3 s"):
        meet(client(server), 1, 2, 0.3)


def test_one_rank_meets_itself(server: TCPStore) -> None:
    assert together(server, 1) == ["of 1"]
