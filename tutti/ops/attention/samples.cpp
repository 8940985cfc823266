#include "tutti/ops/attention/samples.h"

#include <cmath>

#include "tutti/ops/attention/reference.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::attention {

namespace {

// Some keys are hidden; the mask is shared by batch, heads or queries, as the sizes have it.
Tensor sample_mask(int64_t B, int64_t Hq, int64_t Sq, int64_t Sk, DType dtype) {
  const Tensor mask = facets::sample_tensor(5, {Sq % 2 == 0 ? B : 1, B == 2 ? 1 : Hq, Sk == 130 ? 1 : Sq, Sk}, dtype);
  for (int64_t i = 0; i < mask.numel(); i += 7) facets::write_double(mask, i, -kInf);
  return mask;
}

}  // namespace

std::vector<Sample> samples(const OpDef& sdpa, bool backward) {
  struct Case {
    const char* name;
    int64_t B, Sq, Sk, Hq, Hkv, D;
    bool causal;
    int64_t window = -1;
    double score_cap = 0;
  };
  const bool masked = sdpa.num_inputs == 6;
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Case& c : {Case{"full", 2, 5, 7, 2, 2, 8, false}, Case{"causal_gqa", 1, 70, 70, 4, 2, 16, true},
                          Case{"one", 1, 1, 1, 1, 1, 1, true}, Case{"cached", 1, 3, 130, 2, 1, 4, true},
                          Case{"packed", 2, 33, 33, 2, 1, 8, true}, Case{"no_queries", 1, 0, 4, 2, 1, 4, false},
                          Case{"no_batch", 0, 5, 7, 2, 2, 4, false}, Case{"head_tail", 1, 8, 130, 2, 1, 4, false},
                          Case{"window", 1, 80, 80, 2, 1, 8, true, 9}, Case{"decode", 2, 1, 150, 4, 2, 16, true, 70},
                          Case{"capped", 1, 70, 70, 2, 1, 16, true, 30, 0.75}, Case{"wide", 1, 3, 70, 2, 1, 512, true},
                          Case{"wide_one", 1, 1, 1, 3, 1, 130, true}}) {
      const Tensor q = facets::sample_tensor(1, {c.B, c.Sq, c.Hq, c.D}, dtype),
                   k = facets::sample_tensor(2, {c.B, c.Sk, c.Hkv, c.D}, dtype),
                   v = facets::sample_tensor(3, {c.B, c.Sk, c.Hkv, c.D}, dtype),
                   first = Tensor::empty({c.B, c.Sq}, DType::i32), last = Tensor::empty({c.B, c.Sq}, DType::i32);
      for (int64_t i = 0; i < last.numel(); ++i)
        last.data<int32_t>()[i] = static_cast<int32_t>(c.Sq != 8 ? 1000 : i < 4 ? 126 + i : 4 * i);
      for (int64_t i = 0; i < first.numel(); ++i)
        first.data<int32_t>()[i] = c.B == 2 && c.causal && i % c.Sq >= 20 ? 20 : 0;
      Sample s{
          fmt::format("{}_{}", c.name, name_of(dtype)),
          {q, k, v, first, last},
          Attrs::of(SdpaAttrs{
              .scale = 1 / std::sqrt(double(c.D)), .causal = c.causal, .window = c.window, .score_cap = c.score_cap})};
      if (masked) s.inputs.push_back(sample_mask(c.B, c.Hq, c.Sq, c.Sk, compute_dtype(dtype)));
      if (backward) {
        const Tensor mask = s.inputs.back();
        const Tensor o = Tensor::empty(q.extents(), dtype),
                     lse = Tensor::empty({c.B, c.Sq, c.Hq}, compute_dtype(dtype));
        const Tensor outputs[] = {o, lse};
        reference({sdpa, s.inputs, s.attrs}, outputs);
        s.inputs = {facets::sample_tensor(4, q.extents(), dtype), q, k, v, o, lse, first, last};
        if (masked) s.inputs.push_back(mask);
      }
      list.push_back(s);
    }
  }
  return list;
}

std::vector<Sample> node_samples(int count, const Attrs& attrs) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Extents& sizes : {Extents{2, 3, 2, 5}, Extents{1, 1, 1, 1}, Extents{1, 0, 2, 4}}) {
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {}, attrs};
      for (int k = 0; k < count; ++k) {
        const Extents one{sizes[0], sizes[1], sizes[2], 1};
        const uint64_t seed = static_cast<uint64_t>(3 * k);
        s.inputs.insert(s.inputs.end(), {facets::sample_tensor(seed + 1, one, dtype, -3, 3),
                                         facets::sample_tensor(seed + 2, one, dtype, 1, 9),
                                         facets::sample_tensor(seed + 3, sizes, dtype, -4, 4)});
      }
      if (count == 2 && s.inputs[0].numel() > 1) facets::write_double(s.inputs[0], 1, -kInf);
      list.push_back(s);
    }
  }
  return list;
}

}  // namespace tutti::attention
