// Library functions of several ops that run compiled in eager programs as well.
#pragma once

#include "tutti/graph/compile.h"

namespace tutti {

// Compiles `fn` for each kind of arguments, which gives fewer kernels than one per op, and the same bits, gradients
// included. Inside a trace its ops become part of that trace. Past the recompile limit it runs eagerly. May be called
// by any thread.
//
//   static const auto& loss = fused("mse_loss", [](const Tensor& x, const Tensor& y) { ... });
//
// The result is never destroyed, so that it can be called until the program ends.
template <class Fn>
const Compiled<std::decay_t<Fn>>& fused(const char* name, Fn&& fn) {
  return *new Compiled<std::decay_t<Fn>>(std::forward<Fn>(fn),
                                         {.name = name, .on_limit = CompileOptions::OnLimit::eager});
}

}  // namespace tutti
