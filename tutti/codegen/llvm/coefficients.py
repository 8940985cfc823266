#!/usr/bin/env python3
"""Derives the polynomial coefficients of the emitted math functions and prints math_coefficients.h.

Each row of FITS is a function g on an interval, a weight w and a degree: the polynomial p minimises
max |w (g - p)| (Remez exchange on a dense Chebyshev grid, 60 digits). The lowest coefficients are rounded first, one at
a time, and the others fitted again, so rounding costs little. Needs mpmath; takes about a minute.

    python3 coefficients.py > math_coefficients.h
"""
import re
import struct
import sys

from mpmath import mp, mpf, matrix, lu_solve, pi, sqrt, exp, expm1, log, log1p, sin, cos, asin, atan, atanh, erf, erfc
from mpmath import erfinv, loggamma

mp.dps = 60


def residual(grid, g, w, c, lowest):
    error = []
    for x, y, v in zip(grid, g, w):
        p = mpf(0)
        for a in reversed(c):
            p = p * x + a
        error.append(v * (y - p * x ** lowest))
    return error


def alternation(error, count):
    """The largest error of every run of equal sign, reduced to the `count` most significant consecutive ones."""
    runs = []
    for k, e in enumerate(error):
        if runs and (error[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[runs[-1]]):
                runs[-1] = k
        else:
            runs.append(k)
    while len(runs) > count:
        runs.pop(0 if abs(error[runs[0]]) < abs(error[runs[-1]]) else -1)
    return runs


def remez(grid, g, w, degree, lowest):
    """Coefficients of x^lowest .. x^degree minimising the weighted error on the grid."""
    n = degree - lowest + 1
    scale = max(abs(x) for x in grid)
    rows = [[v * (x / scale) ** (lowest + j) for j in range(n)] for x, v in zip(grid, w)]
    # Start from least squares, whose error changes its sign often enough.
    normal = matrix(n, n)
    right = matrix(n, 1)
    for i in range(n):
        for j in range(i, n):
            normal[i, j] = normal[j, i] = sum(row[i] * row[j] for row in rows)
        right[i] = sum(row[i] * v * y for row, v, y in zip(rows, w, g))
    unscaled = lambda s: [s[j] / scale ** (lowest + j) for j in range(n)]
    best = unscaled(lu_solve(normal, right))
    error = residual(grid, g, w, best, lowest)
    for _ in range(40):
        pick = alternation(error, n + 1)
        if len(pick) < n + 1:
            break
        a = matrix(n + 1, n + 1)
        b = matrix(n + 1, 1)
        for row, k in enumerate(pick):
            for j in range(n):
                a[row, j] = rows[k][j]
            a[row, n] = (-1) ** row
            b[row] = w[k] * g[k]
        c = unscaled(lu_solve(a, b))
        found = residual(grid, g, w, c, lowest)
        if max(map(abs, found)) > max(map(abs, error)):
            break
        done = max(map(abs, found)) > max(map(abs, error)) * mpf("0.9999")
        best, error = c, found
        if done:
            break
    return best


def rounded(value, bits):
    if bits == 24:
        return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])
    return mpf(float(value))


def fit(g, lo, hi, degree, weight, bits):
    lo, hi = mpf(lo), mpf(hi)
    points = 40 * (degree + 2)
    grid = [(lo + hi) / 2 + (hi - lo) / 2 * cos(pi * (2 * i + 1) / (2 * points)) for i in range(points)]
    rest = [g(x) for x in grid]
    w = [weight(x) for x in grid]
    c = remez(grid, rest, w, degree, 0)
    for k in range(min(3, degree)):  # higher coefficients matter less than the last bit of these
        c[k] = rounded(c[k], bits)
        left = [r - sum(c[j] * x ** j for j in range(k + 1)) for r, x in zip(rest, grid)]
        c[k + 1:] = remez(grid, left, w, degree, k + 1)
    c = [rounded(v, bits) for v in c]
    return c, max(map(abs, residual(grid, rest, w, c, 0)))


LN2 = log(mpf(2))
R = LN2 / 2 * mpf("1.003")
Q = pi / 4 * mpf("1.003")


def exp_tail(r):  # exp(r) = 1 + r + r^2 p(r)
    return (expm1(r) - r) / r ** 2


def exp2_tail(r):  # 2^r = 1 + r p(r)
    return expm1(r * LN2) / r


def log_s(z):  # log((1 + s) / (1 - s)) = s (2 + z p(z)), z = s^2
    s = sqrt(z)
    return (2 * atanh(s) / s - 2) / z


def log_f(f):  # log(1 + f) = f - f^2 / 2 + f^3 p(f)
    return (log1p(f) - f + f * f / 2) / f ** 3


def sin_tail(z):  # sin r = r + r z p(z)
    r = sqrt(z)
    return (sin(r) / r - 1) / z


def cos_tail(z):  # cos r = 1 - z / 2 + z^2 p(z)
    return (cos(sqrt(z)) - 1 + z / 2) / z ** 2


def asin_tail(z):  # asin x = x + x z p(z)
    x = sqrt(z)
    return (asin(x) / x - 1) / z


def atan_tail(z):  # atan x = x + x z p(z)
    x = sqrt(z)
    return (atan(x) / x - 1) / z


def erf_center(z):  # erf x = x + x p(z)
    x = sqrt(z)
    return erf(x) / x - 1


def erf_exponent(t):  # 1 - erf t = exp(-t - t p(t))
    return -log(erfc(t)) / t - 1


def erfcx_scaled(q):  # exp(t^2) (1 - erf t) = p(q) / (1 + 2 t), q = (t - 3) / (t + 3)
    t = 3 * (1 + q) / (1 - q)
    if t > 50:  # where erfc() runs out of digits: the asymptotic series
        series, term = mpf(1), mpf(1)
        for k in range(1, 40):
            term *= -(2 * k - 1) / (2 * t * t)
            series += term
        return series / (t * sqrt(pi)) * (1 + 2 * t)
    return exp(t * t) * erfc(t) * (1 + 2 * t)


def pow_tail(z):  # log((1 + s) / (1 - s)) = s (2 + z (2/3 + z p(z))), z = s^2
    s = sqrt(z)
    return ((2 * atanh(s) / s - 2) / z - mpf(2) / 3) / z


def lgamma_one(u):  # lgamma(1 + u) = u p(u)
    return loggamma(1 + u) / u


def lgamma_two(u):  # lgamma(2 + u) = u p(u)
    return loggamma(2 + u) / u


def stirling(w):  # lgamma(x) = (x - 1/2) (log x - 1) + (log(2 pi) - 1) / 2 + p(w) / x, w = 1 / x^2
    x = 1 / sqrt(w)
    return (loggamma(x) - (x - mpf(1) / 2) * (log(x) - 1) - (log(2 * pi) - 1) / 2) * x


def erfinv_center(v):  # erfinv x = x p(w - 3.125), w = -log(1 - x^2)
    x = sqrt(-expm1(-(v + mpf("3.125"))))
    return erfinv(x) / x


def erfinv_tail(middle):  # erfinv x = x p(sqrt(w) - middle)
    def g(v):
        x = sqrt(-expm1(-(v + middle) ** 2))
        return erfinv(x) / x
    return g


def one(_):
    return mpf(1)


def relative(g):
    return lambda x: 1 / abs(g(x))


TINY = mpf(10) ** -9
middle_tail, far_tail = erfinv_tail(mpf("3.25")), erfinv_tail(mpf(5))
FITS = [  # name, function, interval, degree, weight, bits
    ("ExpF32", exp_tail, -R, R, 4, lambda r: r * r / exp(r), 24),
    ("Expm1F32", exp_tail, -R, R, 5, abs, 24),
    ("ExpF64", exp_tail, -R, R, 10, abs, 53),
    ("Exp2F32", exp2_tail, -0.5, 0.5, 5, abs, 24),
    ("Exp2F64", exp2_tail, -0.5, 0.5, 11, abs, 53),
    ("LogF32", log_f, -mpf(1) / 3, mpf(1) / 3, 8, lambda f: f * f, 24),
    ("LogF64", log_s, TINY, 0.02945, 6, lambda z: z, 53),
    ("PowLogF64", pow_tail, TINY, 0.02945, 7, lambda z: z * z, 53),
    ("SinF32", sin_tail, TINY, Q * Q, 2, lambda z: z, 24),
    ("CosF32", cos_tail, TINY, Q * Q, 2, lambda z: z * z, 24),
    ("SinF64", sin_tail, TINY, Q * Q, 5, lambda z: z, 53),
    ("CosF64", cos_tail, TINY, Q * Q, 5, lambda z: z * z, 53),
    ("AsinF64", asin_tail, TINY, 0.25, 12, lambda z: z, 53),
    ("AtanF64", atan_tail, TINY, 1, 19, lambda z: z, 53),
    ("ErfF32", erf_center, TINY, mpf("0.92") ** 2, 6, one, 24),
    ("ErfTailF32", erf_exponent, 0.92, 3.95, 6, lambda t: t * erfc(t) / erf(t), 24),
    ("ErfF64", erf_center, TINY, mpf("0.9") ** 2, 11, one, 53),
    ("ErfTailF64", erf_exponent, 0.9, 5.95, 19, lambda t: t * erfc(t) / erf(t), 53),
    ("ErfcxF32", erfcx_scaled, -1, mpf("0.9999999"), 11, relative(erfcx_scaled), 24),
    ("ErfcxF64", erfcx_scaled, -1, mpf("0.9999999"), 26, relative(erfcx_scaled), 53),
    ("LgammaOneF64", lgamma_one, -0.25, 0.5, 20, relative(lgamma_one), 53),
    ("LgammaTwoF64", lgamma_two, -0.5, 1, 20, relative(lgamma_two), 53),
    ("StirlingF64", stirling, TINY, mpf(1) / 64, 7, one, 53),
    ("ErfinvF64", erfinv_center, mpf("-3.1249999"), 3.125, 26, relative(erfinv_center), 53),
    ("ErfinvMiddleF64", middle_tail, -0.75, 0.76, 22, relative(middle_tail), 53),
    ("ErfinvFarF64", far_tail, -1, 1.01, 22, relative(far_tail), 53),
]


def main():
    print("// Coefficients of the emitted math functions, lowest power first; made by coefficients.py.")
    print("#pragma once\n\nnamespace tutti::codegen {\n")
    for name, g, lo, hi, degree, weight, bits in FITS:
        c, worst = fit(g, lo, hi, degree, weight, bits)
        print(f"// Weighted error 2^{mp.nstr(log(worst) / LN2, 4)}.")
        line = f"inline constexpr double k{name}[] = {{"
        for value in c:
            text = re.sub(r"\.?0+p", "p", float(value).hex()) + ","
            if len(line) + len(text) > 118:
                print(line)
                line = "   "
            line += " " + text if not line.endswith("{") else text
        print(line[:-1] + "};")
        sys.stdout.flush()
    print("\n}  // namespace tutti::codegen")


if __name__ == "__main__":
    main()
