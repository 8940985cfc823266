"""Answers of Python's own integers to the cases on stdin, for tests of the number protocol.

One case a line: `op a b`. One answer a line: `WRAPPED CHECKED`, what tensor arithmetic (64 bits, two's complement) and
size arithmetic (checked) must give. An answer is `i:<integer>`, `f:<hex float>`, `zero` (ZeroDivisionError), `overflow`
or `negative` (a negative exponent is refused). Float cases carry hex floats and have one answer.
"""
import sys

LOW, HIGH = -(2**63), 2**63 - 1


def wrap(value):
    return (value + 2**63) % 2**64 - 2**63


def truncdiv(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


INTEGER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "floordiv": lambda a, b: a // b,
    "truncdiv": truncdiv,
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: a - b * truncdiv(a, b),
    "minimum": min,
    "maximum": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a, b: ~a,
}


def checked(value):
    return f"i:{value}" if LOW <= value <= HIGH else "overflow"


def power(a, b):
    if b < 0:  # element rule of integer tensors; sizes refuse it
        whole = {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return f"i:{whole} negative"
    if abs(a) > 1 and b > 64:
        exact = "overflow"  # without computing a number of 2^63 digits
    else:
        exact = checked(a ** (b if abs(a) > 1 or b < 2 else 2 + b % 2))
    return f"i:{wrap(pow(a, b, 2**64))} {exact}"


def answer(op, a, b):
    if op.startswith("float_"):
        x, y = float.fromhex(a), float.fromhex(b)
        return f"f:{(x // y if op == 'float_floordiv' else x % y).hex()}"
    a, b = int(a), int(b)
    try:
        if op == "truediv":
            text = f"f:{(a / b).hex()}"
            return f"{text} {text}"
        if op == "pow":
            return power(a, b)
        value = INTEGER[op](a, b)
    except ZeroDivisionError:
        return "zero zero"
    return f"i:{wrap(value)} {checked(value)}"


for line in sys.stdin:
    print(answer(*line.split()))
