#include "tests/graph/support/risky_ops.h"

#include "tutti/graph/control.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::graph_test {
namespace {

// A copy, unless the first element is large: then its kernel throws, which none of its facets says.
const OpDef kMoody{.name = "moody",
                   .num_inputs = 1,
                   .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
                   .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) { grads[0] = c.grads[0]; }},
                   .kernel =
                       [](const OpCall& call, std::span<const Tensor> outputs) {
                         copy_elements(outputs[0], call[0]);
                         if (outputs[0].numel() == 0) return;
                         const Tensor first = outputs[0].view_as({}, {}, 0);
                         if (first.item() > 1.5) throw UsageError("moody: the first element is large");
                       }};

// Integers near those of `x`; safe: in [0, limit).
Tensor integers_of(const Tensor& x, bool safe, int64_t limit) {
  const Tensor whole = cast(x, DType::i64);
  return safe ? remainder(whole, limit) : whole;
}

}  // namespace

std::function<Tensor()> risky_call(uint32_t op, const Tensor& x, const Tensor& y, uint32_t number) {
  const bool safe = op / 16 % 4 != 0;
  const int64_t dim = number % static_cast<uint32_t>(std::max(x.ndim(), 1));
  switch (op % 8) {
    case 0:
    case 1: {
      const Tensor a = cast(x, DType::i64),
                   b = safe ? add(mul(integers_of(y, false, 0), 2), 1) : integers_of(y, false, 0);
      broadcast_shapes(a.sizes(), b.sizes(), "risky");
      return [=] { return op % 8 == 0 ? floordiv(a, b) : remainder(a, b); };
    }
    case 2:
    case 3: {
      TUTTI_CHECK(x.ndim() > 0, "risky: no dim to pick along");
      const Tensor index = integers_of(x, safe, x.extent(static_cast<int>(dim)));
      return [=] { return op % 8 == 2 ? gather(x, dim, index) : scatter(x, dim, index, x); };
    }
    case 4: {
      const Tensor holds = gt(x, safe ? -1e9 : -1.0);
      return [=] {
        check(holds, "check: a value is too small");
        return neg(x);
      };
    }
    case 5: {
      TUTTI_CHECK(x.ndim() == 2, "risky: no table");
      const Tensor index = flatten(integers_of(y, safe, x.extent(0)));
      return [=] { return index_select(x, 0, index); };
    }
    default: {
      TUTTI_CHECK(is_floating(x.dtype()), "risky: no floats");
      const Tensor tame = safe ? minimum(x, full({}, 1.0, x.dtype())) : x;
      return [=] { return call_op(kMoody, {}, tame); };
    }
  }
}

}  // namespace tutti::graph_test
