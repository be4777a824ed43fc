"""What two sequences have in common, in the same order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

# The time grows with the elements times the differences.
MOST_DIFFERENCES = 1000


def in_common(
    old: Sequence[Hashable], new: Sequence[Hashable], most_differences: int = MOST_DIFFERENCES
) -> list[tuple[int, int]] | None:
    """Find the longest common subsequence as pairs of places, or None if too much differs."""
    # E. W. Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986): find
    # how far along `old` each diagonal leads with a number of differences, then go back from the
    # end.
    reached = {1: 0}
    earlier: list[dict[int, int]] = []

    def step(reached: dict[int, int], diagonal: int, differences: int) -> int:
        """Return the diagonal that leads to this one by leaving out one element of either side."""
        is_first = diagonal == -differences
        is_last = diagonal == differences
        if is_first or (not is_last and reached[diagonal - 1] < reached[diagonal + 1]):
            return diagonal + 1
        return diagonal - 1

    def way_back() -> list[tuple[int, int]]:
        found, row, column = [], len(old), len(new)
        for differences in reversed(range(len(earlier))):
            reached = earlier[differences]
            source = step(reached, row - column, differences)
            source_row = reached[source]
            source_column = source_row - source
            while row > source_row and column > source_column:
                row, column = row - 1, column - 1
                found.append((row, column))
            row, column = source_row, source_column
        return found[::-1]

    for differences in range(most_differences + 1):
        earlier.append(dict(reached))
        for diagonal in range(-differences, differences + 1, 2):
            source = step(reached, diagonal, differences)
            row = reached[source] + (source < diagonal)
            column = row - diagonal
            while row < len(old) and column < len(new) and old[row] == new[column]:
                row, column = row + 1, column + 1
            reached[diagonal] = row
            if row >= len(old) and column >= len(new):
                return way_back()
    return None
