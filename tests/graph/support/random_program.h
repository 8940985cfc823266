// Random programs over tensors: shapes, views, in-place writes, aliasing arguments, dtypes. One number makes one
// program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::graph_test {

// An operation on earlier tensors; the numbers choose among them and among ops, whatever there is.
struct Instruction {
  enum class Kind : uint8_t {
    unary,
    binary,
    scalar,
    compare_where,
    view,
    write,
    row,
    cast,
    matmul,
    join,
    window,  // a view that may overlap itself
    dropout,
    ranked,  // one of the results of an op that gives two
    risky,   // may refuse what its operands hold; see risky_ops.h
  };
  Kind kind;
  uint32_t op, a, b, c;
};

struct Program {
  uint64_t seed;  // of the arguments
  std::vector<Instruction> code;
};

Program make_program(uint64_t seed);
// Fresh arguments: the same values at every call. Some share memory. growth: how much longer dims are than at first.
std::vector<Tensor> arguments_of(const Program& program, int64_t growth = 0);
// All tensors that the program makes. An instruction that the sizes and dtypes of its operands do not allow does
// nothing; one that refuses what they hold ends the program with its error. reads: some instructions are followed by a
// read of an element, which says whether one more tensor is made.
std::vector<Tensor> run_program(const Program& program, const std::vector<Tensor>& arguments, bool reads = false);
// The program as it ran on these arguments, one line per instruction that did something.
std::string describe(const Program& program);

// The shortest part of the program, found by leaving out instructions, for which `fails` still holds.
template <class Fails>
Program shrink(Program program, Fails fails) {
  for (size_t size = program.code.size(); size > 0; size /= 2) {
    for (size_t at = 0; at + size <= program.code.size();) {
      Program shorter = program;
      shorter.code.erase(shorter.code.begin() + static_cast<std::ptrdiff_t>(at),
                         shorter.code.begin() + static_cast<std::ptrdiff_t>(at + size));
      if (fails(shorter)) program = std::move(shorter);
      else at += size;
    }
  }
  return program;
}

}  // namespace tutti::graph_test
