#include "tutti/dist/mesh_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "tutti/core/error.h"

namespace tutti::dist {

int64_t MeshDim::size() const {
  int64_t product = 1;
  for (const StridedPart& part : parts) product *= part.size;
  return product;
}

int64_t MeshDim::offset(int64_t coordinate) const {
  int64_t position = 0;
  for (size_t k = parts.size(); k-- > 0;) {
    position += coordinate % parts[k].size * parts[k].stride;
    coordinate /= parts[k].size;
  }
  return position;
}

MeshLayout MeshLayout::dense(const std::vector<int64_t>& sizes) {
  MeshLayout layout;
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    layout.dims.insert(layout.dims.begin(), MeshDim{{{sizes[d], stride}}});
    stride *= sizes[d];
  }
  return layout;
}

int64_t MeshLayout::size() const {
  int64_t product = 1;
  for (const MeshDim& dim : dims) product *= dim.size();
  return product;
}

std::vector<int64_t> MeshLayout::sizes() const {
  std::vector<int64_t> result;
  for (const MeshDim& dim : dims) result.push_back(dim.size());
  return result;
}

std::vector<int64_t> MeshLayout::offsets() const {
  std::vector<int64_t> result{0};
  for (const MeshDim& dim : dims) {
    std::vector<int64_t> next;
    for (const int64_t base : result) {
      for (int64_t c = 0; c < dim.size(); ++c) next.push_back(base + dim.offset(c));
    }
    result = std::move(next);
  }
  return result;
}

MeshLayout MeshLayout::pick(const std::vector<int>& which) const {
  MeshLayout layout;
  for (const int d : which) layout.dims.push_back(dims[static_cast<size_t>(d)]);
  return layout;
}

// Neighbours that stand as one longer part do are joined, so that equal dims compare equal.
MeshDim MeshLayout::flattened() const {
  MeshDim joined;
  for (const MeshDim& dim : dims) {
    for (const StridedPart& part : dim.parts) {
      if (part.size == 1) continue;
      if (!joined.parts.empty() && joined.parts.back().stride == part.size * part.stride) {
        joined.parts.back() = {joined.parts.back().size * part.size, part.stride};
      } else {
        joined.parts.push_back(part);
      }
    }
  }
  if (joined.parts.empty()) joined.parts.push_back({1, 1});
  return joined;
}

bool MeshLayout::overlaps() const {
  std::vector<int64_t> all = offsets();
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

std::string MeshLayout::to_string() const {
  std::string text;
  for (const MeshDim& dim : dims) {
    std::string sizes, strides;
    for (const StridedPart& part : dim.parts) {
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ",", part.size);
      strides += fmt::format("{}{}", strides.empty() ? "" : ",", part.stride);
    }
    text += fmt::format("({}:{})", sizes, strides);
  }
  return text;
}

std::vector<MeshDim> unflattened(const MeshDim& dim, const std::vector<int64_t>& sizes) {
  std::vector<MeshDim> result(sizes.size());
  std::vector<StridedPart> left = dim.parts;
  // From the innermost size on, each takes what it needs of the innermost pairs.
  for (size_t k = sizes.size(); k-- > 0;) {
    int64_t wanted = sizes[k];
    std::vector<StridedPart>& parts = result[k].parts;
    while (wanted > 1) {
      TUTTI_ASSERT(!left.empty(), "sizes whose product is larger than the dim");
      StridedPart& last = left.back();
      if (last.size == 1) {
        left.pop_back();
        continue;
      }
      const bool takes_all = wanted % last.size == 0;
      const int64_t taken = takes_all ? last.size : wanted;
      TUTTI_CHECK(takes_all || last.size % wanted == 0,
                  "unflatten: size {} of dim {} of the result would divide a run of {} equally distant ranks unevenly; "
                  "choose sizes that divide it",
                  sizes[k], k, last.size);
      parts.insert(parts.begin(), {taken, last.stride});
      wanted /= taken;
      if (taken == last.size) left.pop_back();
      else last = {last.size / taken, last.stride * taken};
    }
    if (parts.empty()) parts.push_back({1, 1});
  }
  return result;
}

}  // namespace tutti::dist
