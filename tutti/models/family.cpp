#include "tutti/models/family.h"

#include <algorithm>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_decoder.h"

namespace tutti::models {
namespace {

std::string respelled(const ModelFamily& family, std::string_view name, std::string_view PartName::* from,
                      std::string_view PartName::* to) {
  std::string result(name);
  for (const PartName& part : family.part_names) {
    if (const size_t at = result.find(part.*from); at != std::string::npos)
      result.replace(at, (part.*from).size(), part.*to);
  }
  return result;
}

}  // namespace

std::string own_name(const ModelFamily& family, std::string_view published) {
  return respelled(family, published, &PartName::published, &PartName::own);
}
std::string published_name(const ModelFamily& family, std::string_view own) {
  return respelled(family, own, &PartName::own, &PartName::published);
}

const ModelFamily& family_named(std::string_view name) {
  for (const NamedFamily& family : family_table()) {
    if (family.name == name) return *family.row;
  }
  throw UsageError(unknown_name_message("model", name, family_names()));
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const NamedFamily& family : family_table()) names.emplace_back(family.name);
  return names;
}

DecoderConfig flavor_named(std::string_view family, std::string_view flavor) {
  std::vector<std::string> names;
  for (DecoderConfig& config : family_named(family).flavors()) {
    if (config.flavor == flavor) return std::move(config);
    names.push_back(config.flavor);
  }
  throw UsageError(unknown_name_message(fmt::format("{} flavor", family), flavor, names));
}

DecoderConfig read_published_config(const std::string& path) {
  PublishedConfig file(path);
  return read_published_config(file);
}

DecoderConfig read_published_config(PublishedConfig& file) {
  const std::string& path = file.path();
  const std::optional<std::string> type = model_type_of(file);
  std::vector<std::string> known;
  for (const auto& [name, family] : family_table()) {
    for (const std::string_view of_family : family->model_types) {
      known.emplace_back(of_family);
      if (type != of_family) continue;
      DecoderConfig config = family->read(file, nullptr);
      file.check_supported();
      config.family = name;
      config.flavor = std::filesystem::absolute(path).parent_path().filename().string();
      try {
        validate(config);
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}: {}", path, error.what()));
      }
      return config;
    }
  }
  throw UsageError(fmt::format("{}: model_type: {}; expected one of: {}", path,
                               type ? fmt::format("\"{}\"", *type) : "not given, nor are architectures",
                               joined(known, ", ")));
}

}  // namespace tutti::models
