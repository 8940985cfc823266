#include "tutti/ops/reshape.h"

#include <algorithm>
#include <optional>

#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

struct ViewAttrs {
  Shape sizes;
  static constexpr auto fields() { return field_list(field::size<&ViewAttrs::sizes>("sizes")); }
};

// The strides by which `sizes` walk the elements of x in row-major order, or nothing when there are none.
std::optional<Extents> view_strides(const Tensor& x, const Extents& sizes) {
  if (x.numel() == 0) return contiguous_strides(sizes);
  // x as blocks, last first, of dims that lie evenly behind each other.
  struct Block {
    int64_t size, stride;
  };
  std::vector<Block> blocks;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    const int64_t size = x.extents()[d], stride = x.strides()[d];
    if (size == 1) continue;
    if (!blocks.empty() && stride == blocks.back().stride * blocks.back().size) blocks.back().size *= size;
    else blocks.push_back({size, stride});
  }
  // Each new dim takes a whole divisor of the block it ends in.
  Extents strides(sizes.size(), 1);
  size_t block = 0;
  int64_t stride = blocks.empty() ? 1 : blocks[0].stride;
  for (int d = sizes.ndim() - 1; d >= 0; --d) {
    strides[d] = stride;
    if (sizes[d] == 1) continue;
    if (blocks[block].size % sizes[d] != 0) return std::nullopt;
    blocks[block].size /= sizes[d];
    stride *= sizes[d];
    if (blocks[block].size == 1 && ++block < blocks.size()) stride = blocks[block].stride;
  }
  return strides;
}

void infer_view(const OpCall& call, OutputMetas& out) {
  const Shape& sizes = call.attrs.as<ViewAttrs>().sizes;
  TUTTI_CHECK(numel_of(sizes) == numel_of(call[0].sizes()), "view: sizes {} hold {} elements, {} has {}", sizes,
              numel_of(sizes), describe(call[0]), call[0].numel());
  out.add(call[0].dtype(), sizes);
}

Tensor make_view(const OpCall& call) {
  OutputMetas metas;
  infer_view(call, metas);
  const Extents sizes = concrete(metas.meta[0].sizes);
  const std::optional<Extents> strides = view_strides(call[0], sizes);
  TUTTI_CHECK(strides.has_value(),
              "view: {} with strides {} cannot be seen as {} without a copy; use reshape, or contiguous first",
              describe(call[0]), call[0].strides(), sizes);
  return call[0].view_as(sizes, *strides, call[0].offset());
}

void view_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor flat = outputs[0].view_as({outputs[0].numel()}, {1}, 0);
  int64_t i = 0;
  facets::for_each_index(call[0].extents(), [&](const Extents& at) { facets::move_element(flat, {i++}, call[0], at); });
}

// The same rule where sizes are symbols, if it is the same for all their values: dims that stay, and runs of dims that
// become one or that one becomes, are told by their expressions. Nothing where there are no symbols, or where it takes
// their values.
std::optional<std::string> symbolic_view_sharding(const Shape& from, const Shape& to) {
  const auto is_symbol = [](const SymInt& s) { return s.is_symbolic(); };
  if (std::none_of(from.begin(), from.end(), is_symbol) && std::none_of(to.begin(), to.end(), is_symbol))
    return std::nullopt;
  const auto is_empty = [](const SymInt& s) { return !s.is_symbolic() && s.value() == 0; };
  if (std::any_of(from.begin(), from.end(), is_empty)) return std::nullopt;
  std::string in, out, even;
  char letter = 'a';
  size_t i = 0, j = 0;
  // How many dims from `begin` on have the product `whole`, and their letters; 0: none.
  const auto run_of = [&](const Shape& sizes, size_t begin, SymInt whole, std::string& letters) -> size_t {
    SymInt product = 1;
    for (size_t d = begin; d < sizes.size(); ++d) {
      product *= sizes[d];
      letters += sizes[d] == 1 ? '1' : static_cast<char>(letter + static_cast<char>(letters.size()));
      if (product.raw() == whole.raw()) return d + 1 - begin;
    }
    return 0;
  };
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && from[i] == 1) {
      in += '1', ++i;
      continue;
    }
    if (j < to.size() && to[j] == 1) {
      out += '1', ++j;
      continue;
    }
    if (i == from.size() || j == to.size()) return std::nullopt;
    std::string merged, split;
    const size_t taken = run_of(from, i, to[j], merged), given = taken > 0 ? 1 : run_of(to, j, from[i], split);
    if (taken == 0 && given == 0) return std::nullopt;
    const std::string& letters = taken > 0 ? merged : split;
    std::string factors;
    for (const char c : letters) factors += c == '1' ? "" : std::string(1, c);
    const std::string one = factors.size() == 1 ? factors : "(" + factors + ")";
    in += taken > 0 ? letters : one;
    out += taken > 0 ? one : letters;
    even += factors.substr(0, factors.size() - 1);
    letter = static_cast<char>(letter + static_cast<char>(letters.size()));
    i += std::max<size_t>(taken, 1), j += given;
  }
  return fmt::format("x[{}] -> y[{}] | {} | id", in, out, even.empty() ? "" : "even{" + even + "}");
}

// Both sides as products of common factors: [6, 4] -> [3, 8] is x[(ab)c] -> y[a(bc)] with a = 3, b = 2, c = 4. Dims
// between whose borders no common factors exist stay whole.
std::string view_sharding(const OpCall& call) {
  if (const std::optional<std::string> rule = symbolic_view_sharding(call[0].sizes(), call.attrs.as<ViewAttrs>().sizes))
    return *rule;
  const Extents from = call[0].extents(), to = concrete(call.attrs.as<ViewAttrs>().sizes);
  // A symbol beside the integer that it is equal to has another size where layouts are chosen for a trace.
  TUTTI_CHECK(numel_of(from) == numel_of(to), "view: {} has no rule for sizes {}", describe(call[0]), to);
  std::string in, out, even;
  char letter = 'a';
  if (call[0].numel() == 0) {
    for (int d = 0; d < from.ndim(); ++d) in += static_cast<char>(letter++ - 'a' + 'A');
    for (int d = 0; d < to.ndim(); ++d) out += static_cast<char>(letter++ - 'a' + 'A');
    return fmt::format("x[{}] -> y[{}] | | id", in, out);
  }
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && from[i] == 1) {
      in += '1', ++i;
      continue;
    }
    if (j < to.size() && to[j] == 1) {
      out += '1', ++j;
      continue;
    }
    // The shortest run of dims on both sides with equal products, and the borders inside it.
    const size_t i0 = i, j0 = j;
    int64_t a = from[i++], b = to[j++];
    std::vector<int64_t> borders = {a, b};
    while (a != b) {
      if (a < b) borders.push_back(a *= from[i++]);
      else borders.push_back(b *= to[j++]);
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    bool nested = true;
    for (size_t k = 1; k < borders.size(); ++k) nested = nested && borders[k] % borders[k - 1] == 0;
    const auto spell = [&](std::string& text, const Extents& sizes, size_t begin, size_t end) {
      int64_t product = 1;
      size_t k = 0;
      for (size_t d = begin; d < end; ++d) {
        product *= sizes[d];
        std::string factors;
        if (sizes[d] != 1) {
          for (; k < borders.size() && borders[k] <= product; ++k)
            factors += static_cast<char>(letter + static_cast<char>(k));
        }
        if (factors.size() > 1) even += factors.substr(0, factors.size() - 1);
        text += sizes[d] == 1 ? "1" : factors.size() == 1 ? factors : "(" + factors + ")";
      }
    };
    if (nested) {
      spell(in, from, i0, i);
      spell(out, to, j0, j);
      letter = static_cast<char>(letter + static_cast<char>(borders.size()));
    } else {
      for (size_t d = i0; d < i; ++d) in += static_cast<char>(letter++ - 'a' + 'A');
      for (size_t d = j0; d < j; ++d) out += static_cast<char>(letter++ - 'a' + 'A');
    }
  }
  return fmt::format("x[{}] -> y[{}] | {} | id", in, out, even.empty() ? "" : "even{" + even + "}");
}

std::vector<Sample> view_samples() {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const Tensor& x, const Shape& sizes) {
    samples.push_back({name, {x}, Attrs::of(ViewAttrs{sizes})});
  };
  add("merge", facets::sample_tensor(1, {3, 5, 7}), {15, 7});
  add("split", facets::sample_tensor(2, {24}), {4, 6});
  add("regroup", facets::sample_tensor(3, {6, 4}), {3, 8});
  add("no_common_factor", facets::sample_tensor(4, {4, 6}), {6, 4});
  add("ones", facets::sample_tensor(5, {1, 6, 1}), {6, 1, 1});
  add("to_scalar", facets::sample_tensor(6, {1, 1}), {});
  add("empty", facets::sample_tensor(7, {0, 4}), {2, 0});
  add("bf16", facets::sample_tensor(8, {2, 9}, DType::bf16), {18});
  add("strided", facets::strided_copy(facets::sample_tensor(9, {4, 6})), {2, 2, 6});
  return samples;
}

const OpDef kView{
    .name = "view",
    .num_inputs = 1,
    .infer = infer_view,
    .reference = view_reference,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = reshape(c.grads[0], c.input_metas[0].sizes); }},
    .view = make_view,
    .sharding = view_sharding,
    .local_attrs = [](const OpCall&, const LocalBox& part) { return Attrs::of(ViewAttrs{to_shape(part.sizes)}); },
    .samples = view_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

// Replaces a -1 by what is left.
Shape complete_sizes(const Shape& sizes, SymInt count, const char* where, const std::string& what) {
  Shape result = sizes;
  int unknown = -1;
  SymInt known = 1;
  for (int d = 0; d < sizes.ndim(); ++d) {
    if (sizes[static_cast<size_t>(d)] == -1) {
      TUTTI_CHECK(unknown < 0, "{}: sizes {} leave two dims open; only one may be -1", where, sizes);
      unknown = d;
    } else {
      TUTTI_CHECK(sizes[static_cast<size_t>(d)] >= 0, "{}: sizes {} hold a negative size", where, sizes);
      known *= sizes[static_cast<size_t>(d)];
    }
  }
  if (unknown >= 0) {
    TUTTI_CHECK(known != 0, "{}: -1 is ambiguous beside a size of 0 in {}", where, sizes);
    TUTTI_CHECK(remainder(count, known) == 0, "{}: sizes {} do not divide the {} elements of {}", where, sizes, count,
                what);
    result[static_cast<size_t>(unknown)] = floordiv(count, known);
  }
  return result;
}

}  // namespace

Tensor view(const Tensor& x, const Shape& sizes) {
  const Shape full = complete_sizes(sizes, numel_of(x.sizes()), "view", describe(x));
  return call_op(kView, Attrs::of(ViewAttrs{full}), x);
}

Tensor reshape(const Tensor& x, const Shape& sizes) {
  const Shape full = complete_sizes(sizes, numel_of(x.sizes()), "reshape", describe(x));
  if (full == x.sizes()) return x;
  TUTTI_CHECK(numel_of(full) == numel_of(x.sizes()), "reshape: sizes {} hold {} elements, {} has {}", full,
              numel_of(full), describe(x), numel_of(x.sizes()));
  const auto has_strides = [](const Tensor& t, const Shape& about) {
    return view_strides(t, concrete(about)).has_value();
  };
  const bool viewable = x.is_contiguous() || decide(x, has_strides, full);
  return call_op(kView, Attrs::of(ViewAttrs{full}), viewable ? x : clone(x));
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  if (x.ndim() == 0) return reshape(x, {1});
  const int first = normalize_dim(start, x.ndim(), "flatten"), last = normalize_dim(end, x.ndim(), "flatten");
  TUTTI_CHECK(first <= last, "flatten: the dims {} to {} of {} run backwards", start, end, describe(x));
  Shape sizes;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d > first && d <= last) sizes.back() *= x.sizes()[static_cast<size_t>(d)];
    else sizes.push_back(x.sizes()[static_cast<size_t>(d)]);
  }
  return reshape(x, sizes);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  const int at = normalize_dim(dim, x.ndim(), "unflatten");
  const SymInt size = x.sizes()[static_cast<size_t>(at)];
  const Shape parts = complete_sizes(sizes, size, "unflatten", fmt::format("dim {} of {}", at, describe(x)));
  TUTTI_CHECK(numel_of(parts) == size, "unflatten: sizes {} hold {} elements, dim {} of {} has {}", parts,
              numel_of(parts), at, describe(x), size);
  Shape full;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != at) full.push_back(x.sizes()[static_cast<size_t>(d)]);
    else
      for (const SymInt part : parts) full.push_back(part);
  }
  return reshape(x, full);
}

}  // namespace tutti

TUTTI_OPS(reshape, &kView)
