// Functions of a library that take several ops and run as compiled ones in eager programs, too.
#pragma once

#include "tutti/graph/compile.h"

namespace tutti {

// `fn`, compiled by kind of arguments: few kernels instead of one per op, with the bits that the ops have one by one, gradients
// included. Inside a trace it is a part of what is traced. Past the recompile limit it runs op by op. Any thread.
//
//   static const auto& loss = fused("mse_loss", [](const Tensor& x, const Tensor& y) { ... });
//
// Never destroyed: a program may call it until its end.
template <class Fn>
const Compiled<std::decay_t<Fn>>& fused(const char* name, Fn&& fn) {
  return *new Compiled<std::decay_t<Fn>>(std::forward<Fn>(fn), {.name = name, .on_limit = CompileOptions::OnLimit::eager});
}

}  // namespace tutti
