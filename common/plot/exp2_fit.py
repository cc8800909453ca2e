"""Fits the polynomials of chapter 8's exponential, and draws their errors.

usage: exp2_fit.py [PICTURE.png]

2^x = 2^floor(x) 2^f with f in [0, 1). A polynomial 1 + c1 f + … + cn f^n takes the place of 2^f. Its
first coefficient is pinned to 1, so that whole numbers come out exactly: 2^0, the weight of a row's
largest score, is 1. Two fits:

  chebyshev   meets 2^f at Chebyshev's points, as many as there are coefficients left
  minimax     Remez' exchange: of all, the one whose largest relative error is the least. There the
              error reaches it n + 1 times, with alternating signs.

Prints coefficients and errors, and says whether the minimax ones are those of
08_blackwell/exp2_polynomial.h. The picture shows the relative error over f beside that of ex2.approx and of rounding to bf16.
"""

import math
import pathlib
import re
import sys

import numpy as np

from style import DARK, GRID as GRID_COLOUR, LIGHT, MIDDLE, WARM, load_pyplot, save

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "08_blackwell" / "exp2_polynomial.h"

GRID = np.linspace(0, 1, 20001)
# Largest relative errors: FlashAttention-4's paper, its table of polynomials and ex2.approx.
PUBLISHED = {3: 8.77e-5, 4: 3.05e-6, 5: 1.44e-7}
MUFU = 1.41e-7
BF16 = 2.0**-8  # half a unit in the last place, of a number just above a power of 2


def polynomial(c, f):
    """1 + c[0] f + c[1] f^2 + …, by Horner's rule."""
    value = np.zeros_like(f)
    for coefficient in reversed(c):
        value = (value + coefficient) * f
    return 1 + value


def relative_error(c, f=GRID):
    return polynomial(c, f) / np.exp2(f) - 1


def chebyshev(degree):
    points = (1 - np.cos((2 * np.arange(degree) + 1) * math.pi / (2 * degree))) / 2
    powers = points[:, None] ** np.arange(1, degree + 1)
    return np.linalg.solve(powers, np.exp2(points) - 1)


def extrema(error, count):
    """Places of the largest errors of alternating signs."""
    runs, start = [], 0
    for i in range(1, len(error) + 1):
        if i == len(error) or np.sign(error[i]) != np.sign(error[start]):
            runs.append(start + int(np.argmax(np.abs(error[start:i]))))
            start = i
    runs = [r for r in runs if error[r] != 0]
    while len(runs) > count:  # drop the smaller end
        runs.pop(0 if abs(error[runs[0]]) < abs(error[runs[-1]]) else -1)
    return np.array(runs)


def minimax(degree):
    points = (1 - np.cos(np.arange(1, degree + 2) * math.pi / (degree + 1))) / 2
    for _ in range(30):
        # polynomial(f) - 2^f = ± e 2^f at the points: as many unknowns as points.
        matrix = np.concatenate([points[:, None] ** np.arange(1, degree + 1),
                                 ((-1.0) ** np.arange(degree + 1) * np.exp2(points))[:, None]], axis=1)
        solution = np.linalg.solve(matrix, np.exp2(points) - 1)
        c = solution[:-1]
        places = extrema(relative_error(c), degree + 1)
        if len(places) < degree + 1:
            break
        points = GRID[places]
    return c


def as_fp32(c):
    return np.asarray(c, dtype=np.float32)


def horner_fp32(c, f):
    """As the kernel computes it but for the fused multiply-add, which rounds once."""
    value = np.full(f.shape, c[-1], dtype=np.float32)
    for coefficient in [*reversed(c[:-1]), 1.0]:
        # A product of two fp32 numbers is exact in fp64, so only the sum is rounded twice.
        value = (value.astype(np.float64) * f.astype(np.float64) + coefficient).astype(np.float32)
    return value


def fp32_error(c):
    f = np.linspace(0, 1, 1 << 20, endpoint=False, dtype=np.float32)
    return np.abs(horner_fp32(as_fp32(c), f) / np.exp2(f.astype(np.float64)) - 1).max()


def header_coefficients():
    """Those that the kernels have, by degree."""
    rows = re.findall(r"\{((?:[0-9.]+f(?:, )?)+)\}", HEADER.read_text(encoding="utf-8"))
    rows = [as_fp32([float(x.rstrip("f")) for x in row.split(", ")]) for row in rows]
    return {len(row): row for row in rows}


def draw(path):
    plot = load_pyplot()
    figure, axes = plot.subplots(figsize=(7.2, 3.6))
    for degree, colour in ((2, LIGHT), (3, WARM), (4, MIDDLE), (5, DARK)):
        error = np.abs(relative_error(minimax(degree)))
        axes.plot(GRID, np.maximum(error, 1e-9), color=colour, linewidth=1.6, label=f"degree {degree}, minimax")
    error = np.abs(relative_error(chebyshev(3)))
    axes.plot(GRID, np.maximum(error, 1e-9), color=WARM, linewidth=1, linestyle=":", label="degree 3, Chebyshev")
    for value, name in ((BF16, "rounding to bf16"), (MUFU, "ex2.approx")):
        axes.axhline(value, color="black", linewidth=0.8, linestyle="--")
        axes.text(1.01, value, name, va="center", fontsize=8.5)
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 1)
    axes.set_xlim(0, 1)
    axes.set_xlabel("f, the part of x behind the point")
    axes.set_ylabel("relative error of 2^f")
    axes.grid(axis="y", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.legend(loc="upper right", ncol=2, frameon=True, edgecolor="white", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    save(figure, path)


def main():
    if len(sys.argv) > 2:
        raise SystemExit(__doc__.split("\n\n")[1])
    print("degree  fit        largest relative error: exact, in fp32, published    coefficients")
    for degree in range(1, 6):
        for fit in (chebyshev, minimax):
            c = as_fp32(fit(degree))
            published = f"{PUBLISHED[degree]:.2e}" if fit is minimax and degree in PUBLISHED else "       —"
            print(f"{degree:6}  {fit.__name__:9}  {np.abs(relative_error(c)).max():.2e}  {fp32_error(c):.2e}  {published}"
                  f"    {', '.join(f'{x:.10g}' for x in c)}")
    kernels = header_coefficients()
    same = sorted(kernels) == [3, 4, 5] and all(np.array_equal(c, as_fp32(minimax(n))) for n, c in kernels.items())
    print(f"\n{HEADER.relative_to(ROOT)} has {'these' if same else 'OTHER'} coefficients of degrees 3 to 5")
    if len(sys.argv) == 2:
        draw(sys.argv[1])
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
