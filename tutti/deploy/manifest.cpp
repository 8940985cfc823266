#include "tutti/deploy/manifest.h"

#include <algorithm>

#include "tutti/deploy/byte_stream.h"

namespace tutti::deploy {
namespace {

constexpr int64_t kMostPoints = 1 << 16;

constexpr int64_t kMostBytes = int64_t{1} << 46;  // of an argument

// Whether an argument of the largest sizes has at most kMostBytes, also where zeros count as ones.
bool is_bounded(const PackageArgument& a, std::span<const PackageSize> sizes) {
  __int128 nbytes = itemsize(a.dtype);
  for (const PackageDim& d : a.dims) {
    const int64_t most = d.symbol < 0 ? d.size : sizes[static_cast<size_t>(d.symbol)].most;
    nbytes *= std::max<int64_t>(most, 1);
    if (nbytes > kMostBytes) return false;
  }
  return true;
}

// Whether the tensor lies within its constant.
bool is_inside(const PackageNamedConstant& c, std::span<const PackageConstant> constants) {
  if (c.constant < 0 || static_cast<size_t>(c.constant) >= constants.size()) return false;
  const uint64_t most = constants[static_cast<size_t>(c.constant)].nbytes;
  if (c.first > most || c.first % static_cast<uint64_t>(itemsize(c.dtype)) != 0) return false;
  uint64_t nbytes = static_cast<uint64_t>(itemsize(c.dtype)), bound = nbytes;  // the latter with zeros as ones
  for (const int64_t size : c.sizes) {
    if (size < 0 || __builtin_mul_overflow(bound, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &bound))
      return false;
    nbytes *= static_cast<uint64_t>(size);
  }
  return nbytes <= most - c.first;
}

// Whether the tensor lies within memory of these sizes.
bool is_inside(const PackageStateTensor& t, std::span<const PackageConstant> memory) {
  if (t.memory < 0 || static_cast<size_t>(t.memory) >= memory.size() || t.first < 0 || t.first % itemsize(t.dtype) != 0)
    return false;
  const auto room = static_cast<__int128>(memory[static_cast<size_t>(t.memory)].nbytes) - t.first;
  __int128 nbytes = itemsize(t.dtype), bound = nbytes;  // the second without zeros, so that strides do not overflow
  for (const int64_t size : t.sizes) {
    nbytes *= size, bound *= std::max<int64_t>(size, 1);
    if (bound > __int128{1} << 62) return false;
  }
  return nbytes <= room;
}

}  // namespace

const char* features_of(codegen::CpuTarget level) {
  constexpr const char* kFeatures[codegen::kNumCpuTargets] = {
      "AVX2, FMA, BMI2", "AVX2, FMA, BMI2, AVX512F, AVX512BW, AVX512DQ, AVX512VL, AVX512CD",
      "AVX2, FMA, BMI2, AVX512F, AVX512BW, AVX512DQ, AVX512VL, AVX512CD, AVX512_VNNI",
      "AVX2, FMA, BMI2, AVX512F, AVX512BW, AVX512DQ, AVX512VL, AVX512CD, AVX512_VNNI, AVX512_BF16"};
  return kFeatures[static_cast<size_t>(level)];
}

std::string Manifest::to_bytes() const {
  ByteWriter out;
  out.put_text(function), out.put_text(made_by);
  out.put(numerics_version), out.put(generator);
  const auto list = [&](const auto& items, auto each) {
    out.put(static_cast<uint64_t>(items.size()));
    for (const auto& item : items) each(item);
  };
  list(sizes, [&](const PackageSize& s) {
    out.put_text(s.name), out.put(s.least), out.put(s.most), out.put(s.step), out.put(s.apart_from);
  });
  list(inputs, [&](const PackageArgument& a) {
    out.put(a.dtype);
    list(a.dims, [&](const PackageDim& d) { out.put(d.symbol), out.put(d.size); });
    out.put(a.is_written);
  });
  list(outputs, [&](DType d) { out.put(d); });
  list(ops, [&](const PackageOp& op) { out.put_text(op.name), out.put_text(op.attrs), out.put(op.schema); });
  list(levels, [&](codegen::CpuTarget level) { out.put(level); });
  list(library_dtypes, [&](DType d) { out.put(d); });
  list(constants, [&](const PackageConstant& c) { out.put(c.first), out.put(c.nbytes); });
  list(named_constants, [&](const PackageNamedConstant& c) {
    out.put_text(c.name), out.put(c.dtype);
    list(c.sizes, [&](int64_t size) { out.put(size); });
    out.put(c.constant), out.put(c.first);
  });
  out.put(constant_nbytes);
  list(state_memory, [&](const PackageConstant& c) { out.put(c.first), out.put(c.nbytes); });
  list(state, [&](const PackageStateTensor& t) {
    out.put_text(t.name), out.put(t.dtype);
    list(t.sizes, [&](int64_t size) { out.put(size); });
    out.put(t.memory), out.put(t.first);
  });
  list(groups, [&](const PackageGroup& g) {
    out.put_text(g.name), out.put(g.ranks), out.put(g.rank), out.put_text(g.together);
  });
  return out.take();
}

Manifest Manifest::of_bytes(std::string_view bytes) {
  ByteReader in(bytes, "manifest");
  Manifest m;
  m.function = in.get_text(), m.made_by = in.get_text();
  m.numerics_version = in.get<int32_t>(), m.generator = in.get<uint64_t>();
  const auto list = [&](size_t least, auto each) {
    for (size_t count = in.get_count(least); count > 0; --count) each();
  };
  const auto dtype = [&] { return in.get_up_to(DType::boolean); };
  list(36, [&] {
    PackageSize s{std::string(in.get_text())};
    s.least = in.get<int64_t>(), s.most = in.get<int64_t>(), s.step = in.get<int64_t>();
    s.apart_from = in.get<int32_t>();
    TUTTI_CHECK_PACKAGE(s.least >= 0 && s.step > 0 && s.most >= s.least && s.most < int64_t{1} << 40,
                        "the manifest of the package has a size from {} to {}", s.least, s.most);
    const bool is_free = s.apart_from == -1, is_before = s.apart_from < static_cast<int32_t>(m.sizes.size());
    TUTTI_CHECK_PACKAGE(
        is_free || (s.apart_from >= 0 && is_before && m.sizes[static_cast<size_t>(s.apart_from)].apart_from == -1 &&
                    m.partner_of(static_cast<size_t>(s.apart_from)) == nullptr),
        "the manifest of the package has a size '{}' that is apart from size {}", s.name, s.apart_from);
    m.sizes.push_back(std::move(s));
  });
  list(10, [&] {
    PackageArgument a{.dtype = dtype(), .dims = {}};
    list(12, [&] {
      const PackageDim d{in.get<int32_t>(), in.get<int64_t>()};
      TUTTI_CHECK_PACKAGE(d.symbol >= -1 && d.symbol < static_cast<int32_t>(m.sizes.size()) && d.size >= 0 &&
                              d.size < int64_t{1} << 40 && a.dims.size() < kMaxDims,
                          "the manifest of the package has a dim of size {}", d.size);
      a.dims.push_back(d);
    });
    a.is_written = in.get_up_to(uint8_t{1}) == 1;
    TUTTI_CHECK_PACKAGE(is_bounded(a, m.sizes), "argument {} in the manifest of the package has more than {} bytes",
                        m.inputs.size(), kMostBytes);
    m.inputs.push_back(std::move(a));
  });
  for (size_t i = 0; i < m.sizes.size(); ++i) {
    const auto has_it = [&](const PackageArgument& a) {
      return std::any_of(a.dims.begin(), a.dims.end(),
                         [&](const PackageDim& d) { return d.symbol == static_cast<int32_t>(i); });
    };
    TUTTI_CHECK_PACKAGE(std::any_of(m.inputs.begin(), m.inputs.end(), has_it),
                        "the manifest of the package has a size '{}' that is the size of no dim", m.sizes[i].name);
  }
  list(1, [&] { m.outputs.push_back(dtype()); });
  list(24, [&] {
    PackageOp op;
    op.name = in.get_text(), op.attrs = in.get_text(), op.schema = in.get<uint64_t>();
    m.ops.push_back(std::move(op));
  });
  list(1, [&] { m.levels.push_back(in.get_up_to(codegen::CpuTarget::avx512bf16)); });
  list(1, [&] { m.library_dtypes.push_back(dtype()); });
  const auto memory = [&](std::vector<PackageConstant>& to) {
    list(16, [&] {
      const auto first = in.get<uint64_t>();
      to.push_back({first, in.get<uint64_t>()});
    });
  };
  memory(m.constants);
  list(29, [&] {
    PackageNamedConstant c{.name = std::string(in.get_text()), .dtype = dtype(), .sizes = {}};
    list(8, [&] {
      TUTTI_CHECK_PACKAGE(c.sizes.size() < kMaxDims, "a constant of the package has {} dims", c.sizes.size() + 1);
      c.sizes.push_back(in.get<int64_t>());
    });
    c.constant = in.get<int32_t>(), c.first = in.get<uint64_t>();
    TUTTI_CHECK_PACKAGE(is_inside(c, m.constants), "the constant {} of the package is in none of its constants",
                        c.name);
    m.named_constants.push_back(std::move(c));
  });
  m.constant_nbytes = in.get<uint64_t>();
  memory(m.state_memory);
  list(29, [&] {
    PackageStateTensor t{.name = std::string(in.get_text()), .dtype = dtype(), .sizes = {}};
    list(8, [&] {
      TUTTI_CHECK_PACKAGE(t.sizes.size() < kMaxDims, "the manifest of the package has a state tensor of {} dims",
                          t.sizes.size() + 1);
      t.sizes.push_back(in.get<int64_t>());
      TUTTI_CHECK_PACKAGE(t.sizes.back() >= 0, "the manifest of the package has a size {}", t.sizes.back());
    });
    t.memory = in.get<int32_t>(), t.first = in.get<int64_t>();
    TUTTI_CHECK_PACKAGE(is_inside(t, m.state_memory), "the manifest of the package has a state tensor without memory");
    m.state.push_back(std::move(t));
  });
  list(24, [&] {
    PackageGroup g{.name = std::string(in.get_text())};
    g.ranks = in.get<int32_t>(), g.rank = in.get<int32_t>(), g.together = in.get_text();
    TUTTI_CHECK_PACKAGE(g.ranks >= 1 && g.rank >= -1 && g.rank < g.ranks && g.together.size() == kTogetherBytes,
                        "the manifest of the package has a group of {} ranks, which is for rank {}", g.ranks, g.rank);
    TUTTI_CHECK_PACKAGE(!g.name.empty() && std::ranges::find(m.groups, g.name, &PackageGroup::name) == m.groups.end(),
                        "the manifest of the package has a group '{}' that has no name, or that of another group",
                        g.name);
    m.groups.push_back(std::move(g));
  });
  in.at_end();
  TUTTI_CHECK_PACKAGE(m.points() <= kMostPoints, "the manifest of the package has more than {} combinations of sizes",
                      kMostPoints);
  return m;
}

const PackageSize* Manifest::partner_of(size_t size) const {
  for (const PackageSize& s : sizes) {
    if (s.apart_from == static_cast<int32_t>(size)) return &s;
  }
  return nullptr;
}

// A size and the one that is apart from it are one digit of a point: first the values of the former, then those of the
// latter above its least.
int64_t Manifest::points() const {
  int64_t points = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].apart_from >= 0) continue;
    const PackageSize* partner = partner_of(i);
    const int64_t values = sizes[i].count() + (partner == nullptr ? 0 : partner->count() - 1);
    if (__builtin_mul_overflow(points, values, &points)) return std::numeric_limits<int64_t>::max();
  }
  return points;
}

std::vector<int64_t> Manifest::sizes_of(int64_t point) const {
  std::vector<int64_t> values;
  for (const PackageSize& s : sizes) values.push_back(s.least);
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i].apart_from >= 0) continue;
    const PackageSize* partner = partner_of(i);
    const int64_t own = sizes[i].count(), digits = own + (partner == nullptr ? 0 : partner->count() - 1);
    const int64_t digit = point % digits;
    if (digit < own) values[i] += digit * sizes[i].step;
    else values[static_cast<size_t>(partner - sizes.data())] += (digit - own + 1) * partner->step;
    point /= digits;
  }
  return values;
}

Extents Manifest::extents_of(const PackageArgument& input, std::span<const int64_t> values) const {
  Extents extents;
  for (const PackageDim& d : input.dims)
    extents.push_back(d.symbol < 0 ? d.size : values[static_cast<size_t>(d.symbol)]);
  return extents;
}

int64_t Manifest::point_of(std::span<const Extents> extents, std::span<const DType> dtypes) const {
  TUTTI_CHECK(extents.size() == inputs.size(), "{}: {} arguments are given, the package takes {}", function,
              extents.size(), inputs.size());
  std::vector<int64_t> values(sizes.size(), -1);
  std::vector<std::string> where(sizes.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PackageArgument& input = inputs[i];
    TUTTI_CHECK(dtypes[i] == input.dtype, "{}: argument {} is {}, the package takes {}", function, i,
                name_of(dtypes[i]), name_of(input.dtype));
    TUTTI_CHECK(extents[i].size() == input.dims.size(), "{}: argument {} is {}, the package takes {} dims", function, i,
                extents[i], input.dims.size());
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const int64_t size = extents[i][d];
      const int32_t symbol = input.dims[d].symbol;
      if (symbol < 0) {
        TUTTI_CHECK(size == input.dims[d].size, "{}: argument {}, dim {} is {}, and must be {}", function, i, d, size,
                    input.dims[d].size);
        continue;
      }
      const PackageSize& s = sizes[static_cast<size_t>(symbol)];
      TUTTI_CHECK(size >= s.least && size <= s.most && (size - s.least) % s.step == 0,
                  "{}: argument {}, dim {} is {}, and '{}' is from {} to {}{}", function, i, d, size, s.name, s.least,
                  s.most, s.step == 1 ? "" : fmt::format(" in steps of {}", s.step));
      int64_t& value = values[static_cast<size_t>(symbol)];
      TUTTI_CHECK(value < 0 || value == size, "{}: argument {}, dim {} is {}, and {} is {}; both are '{}'", function, i,
                  d, size, where[static_cast<size_t>(symbol)], value, s.name);
      value = size;
      where[static_cast<size_t>(symbol)] = fmt::format("argument {}, dim {}", i, d);
    }
  }
  const auto digit_of = [&](const PackageSize& s) {
    return (values[static_cast<size_t>(&s - sizes.data())] - s.least) / s.step;
  };
  int64_t point = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].apart_from >= 0) continue;
    const PackageSize* partner = partner_of(i);
    const int64_t own = sizes[i].count(), digit = digit_of(sizes[i]);
    const int64_t other = partner == nullptr ? 0 : digit_of(*partner);
    TUTTI_CHECK(digit == 0 || other == 0,
                "{}: '{}' is {} and '{}' {}; only one of them may be above its least, {} and {}", function,
                sizes[i].name, values[i], partner->name, partner->least + other * partner->step, sizes[i].least,
                partner->least);
    point = point * (own + (partner == nullptr ? 0 : partner->count() - 1)) + (other == 0 ? digit : own - 1 + other);
  }
  return point;
}

}  // namespace tutti::deploy
