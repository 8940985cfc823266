#include "tutti/models/file_type.h"

#include <algorithm>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

constexpr FileTypeRow kFileTypes[] = {
    {FileType::f32, "f32", BlockFormat::f32, BlockFormat::f32},
    {FileType::bf16, "bf16", BlockFormat::bf16, BlockFormat::bf16},
    {FileType::f16, "f16", BlockFormat::f16, BlockFormat::f16},
    {FileType::q4_0, "q4_0", BlockFormat::q4_0, BlockFormat::q6_k},
    {FileType::q4_1, "q4_1", BlockFormat::q4_1, BlockFormat::q6_k},
    {FileType::q5_0, "q5_0", BlockFormat::q5_0, BlockFormat::q6_k},
    {FileType::q5_1, "q5_1", BlockFormat::q5_1, BlockFormat::q6_k},
    {FileType::q8_0, "q8_0", BlockFormat::q8_0, BlockFormat::q8_0},
    {FileType::q4_k_m, "q4_k_m", BlockFormat::q4_k, BlockFormat::q6_k},
    {FileType::q5_k_m, "q5_k_m", BlockFormat::q5_k, BlockFormat::q6_k},
    {FileType::q6_k, "q6_k", BlockFormat::q6_k, BlockFormat::q6_k},
};

const FileTypeRow* find_row(auto&& holds) {
  const auto* found = std::find_if(std::begin(kFileTypes), std::end(kFileTypes), holds);
  return found == std::end(kFileTypes) ? nullptr : found;
}

}  // namespace

const FileTypeRow& row_of(FileType type) {
  const FileTypeRow* row = find_row([&](const FileTypeRow& r) { return r.type == type; });
  TUTTI_ASSERT(row != nullptr, "no file type has the id {}", static_cast<int>(type));
  return *row;
}

FileType file_type_from_name(std::string_view name) {
  if (const auto* row = find_row([&](const FileTypeRow& r) { return r.name == name; })) return row->type;
  throw UsageError(unknown_name_message("file type", name, file_type_names()));
}

std::vector<std::string> file_type_names() {
  std::vector<std::string> names;
  for (const FileTypeRow& row : kFileTypes) names.emplace_back(row.name);
  return names;
}

std::optional<FileType> file_type_of(DType dtype) {
  const auto* row = find_row([&](const FileTypeRow& r) { return row_of(r.matrices).dtype == dtype; });
  return row == nullptr ? std::nullopt : std::optional(row->type);
}

}  // namespace tutti::models
