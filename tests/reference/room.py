"""Naive twin of nice_spacing.keep_with_margin."""

from __future__ import annotations

from itertools import count


def with_room(height, kept, margin, floor, ceiling):
    """The kept rows after each run of moved rows grew to the nearer side that has room, from the top down."""
    n, stays = len(height), list(kept)

    def roomy(above, below):
        high = ceiling + 1 if above < 0 else height[above]
        low = max(height[below], floor - 1) if below < n else floor - 1
        return high - low >= (below - above) * margin

    row = 0
    while row < n:
        if stays[row]:
            row += 1
            continue
        above = [-1, *(i for i in range(row) if stays[i])][::-1]
        below = [*(i for i in range(row, n) if stays[i]), n]
        for k in count():
            up, down = above[min(k, len(above) - 1)], below[min(k, len(below) - 1)]
            if roomy(up, below[0]):
                edge = (up, below[0])
            elif roomy(above[0], down):
                edge = (above[0], down)
            elif up < 0 and down == n:
                return [False] * n
            else:
                continue
            break
        stays[edge[0] + 1 : edge[1]] = [False] * (edge[1] - edge[0] - 1)
        row = edge[1]
    return stays
