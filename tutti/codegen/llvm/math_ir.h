// Values in the formulas of math_*.cpp: thin handles whose operators emit LLVM instructions.
//
// Formulas read like arithmetic and are written once for any number of lanes; LLVM headers stay in math_ir.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace tutti::codegen {

// f32 or f64 lanes.
struct Fp {
  llvm::IRBuilderBase* b;
  llvm::Value* value;
};

// Integer lanes as wide as the Fp they belong to.
struct Int {
  llvm::IRBuilderBase* b;
  llvm::Value* value;
};

struct Mask {
  llvm::IRBuilderBase* b;
  llvm::Value* value;
};

// An operand: lanes, or a number that takes the type of the other operands.
struct Term {
  Term(Fp v) : lanes(v) {}
  Term(double c) : lanes{nullptr, nullptr}, constant(c) {}
  Fp lanes;
  double constant = 0.0;
};

struct IntTerm {
  IntTerm(Int v) : lanes(v) {}
  IntTerm(int64_t c) : lanes{nullptr, nullptr}, constant(c) {}
  Int lanes;
  int64_t constant = 0;
};

bool is_f32(Fp x);
Fp number(Fp like, double c);  // c in every lane

Fp operator+(Term a, Term b);
Fp operator-(Term a, Term b);
Fp operator*(Term a, Term b);
Fp operator/(Term a, Term b);
Fp operator-(Fp a);
Fp fma(Term a, Term b, Term c);  // a * b + c, one rounding
Fp sqrt(Fp x);
Fp abs(Fp x);
Fp floor(Fp x);
Fp round_even(Fp x);
Fp copysign(Term magnitude, Term sign);

// Ordered comparisons: false when a side is NaN.
Mask operator<(Term a, Term b);
Mask operator<=(Term a, Term b);
inline Mask operator>(Term a, Term b) { return b < a; }
inline Mask operator>=(Term a, Term b) { return b <= a; }
Mask equal(Term a, Term b);
Mask is_nan(Fp x);
Mask operator&(Mask a, Mask b);
Mask operator|(Mask a, Mask b);
Mask operator^(Mask a, Mask b);
Mask operator!(Mask a);

Fp select(Mask m, Term yes, Term no);
// The smaller or larger of x and a number; NaN stays NaN.
inline Fp at_most(Fp x, double limit) { return select(x > limit, limit, x); }
inline Fp at_least(Fp x, double limit) { return select(x < limit, limit, x); }

Int bits(Fp x);
Fp from_bits(Int pattern);
Int operator+(IntTerm a, IntTerm b);
Int operator-(IntTerm a, IntTerm b);
Int operator&(IntTerm a, IntTerm b);
Int operator|(IntTerm a, IntTerm b);
Int operator^(IntTerm a, IntTerm b);
Int operator<<(Int a, int64_t count);
Int operator>>(Int a, int64_t count);  // zeros come in
Mask equal(IntTerm a, IntTerm b);

Fp widen(Fp x);   // f32 lanes to f64, exact
Fp narrow(Fp x);  // f64 lanes to f32, one rounding

// Whether times_power_of_two() is one instruction here: in whole registers of 512 bits, where the function is for
// processors that have them.
bool has_times_power_of_two(Fp x);
// x * 2^n for integers n, rounded once where the result is denormal, infinite where it is too large.
Fp times_power_of_two(Fp x, Fp n);

// c[0] + c[1] x + ..., one fma per coefficient after the first.
Fp polynomial(Fp x, std::span<const double> c);
// One of two polynomials per lane, of equal length.
Fp polynomial(Fp x, Mask m, std::span<const double> yes, std::span<const double> no);

// `values`, in which the lanes of `m` are replaced by what `rare` gives. Branches around `rare` when no lane is in m.
std::vector<Fp> replace_rare(Mask m, std::vector<Fp> values, const std::function<std::vector<Fp>()>& rare);

// Layout of the type of x.
struct FloatLayout {
  int mantissa_bits;
  int64_t bias;
  double smallest_normal;
  double round_magic;  // 1.5 * 2^mantissa_bits: adding it rounds to an integer, kept in the low bits of the pattern
};
const FloatLayout& layout(Fp x);

}  // namespace tutti::codegen
