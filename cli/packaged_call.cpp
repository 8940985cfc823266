#include "cli/packaged_call.h"

#include <cstdlib>
#include <cstring>

#include "cli/started_rank.h"
#include "tutti/comm/rank_group.h"
#include "tutti/core/error.h"
#include "tutti/deploy/package.h"

namespace tutti::cli {
namespace {

// The value that --size gives the declared size; its least when there is none.
std::vector<int64_t> sizes_of(const deploy::Manifest& manifest, const std::vector<std::string>& given) {
  std::vector<int64_t> values;
  for (const deploy::PackageSize& s : manifest.sizes) values.push_back(s.least);
  for (const std::string& text : given) {
    const size_t at = text.find('=');
    size_t k = 0;
    while (k < manifest.sizes.size() && manifest.sizes[k].name != text.substr(0, at)) ++k;
    char* end = nullptr;
    const long long value = at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + 1, &end, 10);
    TUTTI_CHECK(k < manifest.sizes.size() && end != nullptr && *end == '\0' && end != text.c_str() + at + 1,
                "--size {}: expected NAME=NUMBER with the name of a size that `tutti package inspect` lists", text);
    values[k] = value;
  }
  return values;
}

// Element i is (i % 7 - 3) / 4; of integers and truth values i % 2; narrower floats than f32 are 0, but for bf16.
Tensor pattern(const Extents& extents, DType dtype) {
  Tensor t = Tensor::empty(extents, dtype);
  if (t.nbytes() > 0) std::memset(t.raw_data(), 0, static_cast<size_t>(t.nbytes()));
  for (int64_t i = 0; i < t.numel(); ++i) {
    const float value = (static_cast<float>(i % 7) - 3) / 4;
    if (dtype == DType::f32) static_cast<float*>(t.raw_data())[i] = value;
    else if (dtype == DType::bf16) static_cast<bfloat16*>(t.raw_data())[i] = to_bfloat16(value);
    else if (dtype == DType::f64) static_cast<double*>(t.raw_data())[i] = value;
    else if (dtype == DType::i64) static_cast<int64_t*>(t.raw_data())[i] = i % 2;
    else if (dtype == DType::i32) static_cast<int32_t*>(t.raw_data())[i] = static_cast<int32_t>(i % 2);
    else if (itemsize(dtype) == 1 && !is_floating(dtype))
      static_cast<uint8_t*>(t.raw_data())[i] = static_cast<uint8_t>(i % 2);
  }
  return t;
}

}  // namespace

std::vector<Tensor> pattern_arguments(const deploy::Manifest& manifest, const std::vector<std::string>& given) {
  const std::vector<int64_t> sizes = sizes_of(manifest, given);
  std::vector<Tensor> arguments;
  for (const deploy::PackageArgument& input : manifest.inputs)
    arguments.push_back(pattern(manifest.extents_of(input, sizes), input.dtype));
  return arguments;
}

std::optional<int> number_of_rank() {
  const auto place = comm::read_launch_place();
  return place ? std::optional(place->rank) : std::nullopt;
}

std::string file_of_rank(std::string file) {
  constexpr std::string_view kHere = "{rank}";
  if (const size_t at = file.find(kHere); at != std::string::npos)
    file.replace(at, kHere.size(), std::to_string(number_of_rank().value_or(0)));
  return file;
}

std::shared_ptr<void> join_ranks(deploy::Package& package, const std::string& file) {
  const auto& groups = package.manifest().groups;
  if (groups.empty()) return nullptr;
  const auto place = comm::read_launch_place();
  TUTTI_CHECK(place.has_value(),
              "package run: {} communicates with the {} ranks of group '{}'; start them: tutti launch -n {} -- tutti "
              "package run FILE, where {{rank}} in FILE stands for the number of the rank",
              file, groups[0].ranks, groups[0].name, groups[0].ranks);
  TUTTI_CHECK(groups.size() == 1,
              "package run: {} communicates in {} groups, and a launcher starts ranks of one; run it with "
              "deploy::Package",
              file, groups.size());
  const auto rank = std::make_shared<StartedRank>(*place, "auto");
  package.set_groups(std::vector{comm::rank_group(rank->group().shared_from_this())});
  return rank;
}

}  // namespace tutti::cli
