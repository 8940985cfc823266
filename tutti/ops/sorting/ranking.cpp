#include "tutti/ops/sorting/ranking.h"

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/sorting/lines.h"

namespace tutti::facets {

void rank_lines(const Tensor& x, int dim, bool descending, std::span<const Tensor> outputs,
                void (*select)(Ranked* begin, Ranked* middle, Ranked* end)) {
  const Tensor &values = outputs[0], &indices = outputs[1];
  if (values.numel() == 0) return;
  const size_t d = static_cast<size_t>(dim);
  const uint64_t flip = descending ? ~uint64_t{0} : 0;
  const int64_t length = x.extents()[d], count = values.extents()[d], from_step = x.strides()[d],
                to_step = values.strides()[d];
  visit_dtype(x.dtype(), [&]<class T>() {
    for_each_line(x, dim, [&](int64_t begin, int64_t end) {
      std::vector<Ranked> line(static_cast<size_t>(length));
      for (int64_t l = begin; l < end; ++l) {
        const T* from = static_cast<const T*>(x.raw_data()) + line_offset(x, dim, l);
        const int64_t to = line_offset(values, dim, l);
        for (int64_t i = 0; i < length; ++i) line[static_cast<size_t>(i)] = {order_key(from[i * from_step]) ^ flip, i};
        select(line.data(), line.data() + count, line.data() + length);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t source = line[static_cast<size_t>(i)].index;
          static_cast<T*>(values.raw_data())[to + i * to_step] = from[source * from_step];
          static_cast<int64_t*>(indices.raw_data())[to + i * to_step] = source;
        }
      }
    });
  });
}

void reference_rank(const Tensor& x, int dim, bool descending, std::span<const Tensor> outputs,
                    const std::function<std::vector<int64_t>(int64_t length, const Before& before)>& choose) {
  if (outputs[0].numel() == 0) return;
  const size_t d = static_cast<size_t>(dim);
  const bool integer = !is_floating(x.dtype());
  const auto less = [&](int64_t a, int64_t b) {
    if (integer) return read_int64(x, a) < read_int64(x, b);
    const double p = read_double(x, a), q = read_double(x, b);
    return p < q || (q != q && p == p);
  };
  Extents lines = x.extents();
  lines[d] = 1;
  for_each_index(lines, [&](const Extents& start) {
    const int64_t base = offset_at(x, start), step = x.strides()[d];
    const std::vector<int64_t> order = choose(x.extents()[d], [&](int64_t a, int64_t b) {
      return descending ? less(base + b * step, base + a * step) : less(base + a * step, base + b * step);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      Extents target = start, source = start;
      target[d] = static_cast<int64_t>(i);
      source[d] = order[i];
      move_element(outputs[0], target, x, source);
      write_int64(outputs[1], offset_at(outputs[1], target), order[i]);
    }
  });
}

void rank_vjp(const VjpCall& call, int64_t dim, std::span<Tensor> grads) {
  if (!call.grads[0].defined()) return;
  const Tensor start = full_beside(call.grads[0], call.input_metas[0].sizes, kSumIdentity, call.grads[0].dtype());
  grads[0] = scatter(start, dim, call.outputs[1], call.grads[0]);
}

}  // namespace tutti::facets
