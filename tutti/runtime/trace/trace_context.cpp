#include "tutti/runtime/trace/trace_context.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>

#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {
namespace {

// More places than a program has: names that grow without end (a step number) must not fill the memory.
constexpr size_t kMaxPlaces = 1 << 16;

using PlaceKey = std::tuple<const TracePlace*, std::string, const char*, uint32_t>;

// "draw" of "void app::Widget::draw(int) const".
std::string function_of(std::string_view signature) {
  signature = signature.substr(0, signature.find('('));
  const size_t space = signature.rfind(' '), colons = signature.rfind("::");
  size_t begin = space == std::string_view::npos ? 0 : space + 1;
  if (colons != std::string_view::npos) begin = std::max(begin, colons + 2);
  return std::string(signature.substr(begin));
}

// "tutti/models/qwen3.cpp" wherever Tutti's sources lay when they were compiled: a trace names no folder of a machine.
// Files outside of them keep the name that their compiler had.
std::string_view source_name(std::string_view file) {
  constexpr std::string_view here = __FILE__, name = "tutti/runtime/trace/trace_context.cpp";
  static_assert(here.ends_with(name));
  constexpr std::string_view root = here.substr(0, here.size() - name.size());
  return file.starts_with(root) ? file.substr(root.size()) : file;
}

// The place inside `parent` that `key` names, made by `fill` when it is new.
template <class Fill>
const TracePlace* intern(const TracePlace* parent, const PlaceKey& key, Fill fill) {
  static std::mutex mutex;
  static auto* places = new std::map<PlaceKey, std::unique_ptr<const TracePlace>>;  // outlives all threads
  const std::lock_guard lock(mutex);
  if (const auto it = places->find(key); it != places->end()) return it->second.get();
  if (places->size() >= kMaxPlaces) return parent;
  auto place = std::make_unique<TracePlace>();
  fill(*place);
  if (parent) place->stack.insert(place->stack.end(), parent->stack.begin(), parent->stack.end());
  return places->emplace(key, std::move(place)).first->second.get();
}

const TracePlace* intern_module(const TracePlace* parent, const std::string& name, const std::source_location& where) {
  return intern(parent, {parent, name, where.file_name(), where.line()}, [&](TracePlace& place) {
    place.module_path = parent && !parent->module_path.empty() ? parent->module_path + "." + name : name;
    if (where.line() == 0) return;
    place.stack.push_back(
        fmt::format("{}:{} ({})", source_name(where.file_name()), where.line(), function_of(where.function_name())));
  });
}

}  // namespace

std::string_view name_of(TracePhase phase) {
  static constexpr std::string_view names[] = {"fwd", "bwd", "opt"};
  return names[static_cast<int>(phase)];
}

const TracePlace* place_with_line(const TracePlace* place, const std::string& line) noexcept {
  if (line.empty()) return place;
  try {
    return intern(place, {place, line, nullptr, 0}, [&](TracePlace& made) {
      if (place) made.module_path = place->module_path;
      made.stack.push_back(line);
    });
  } catch (const std::bad_alloc&) {
    return place;
  }
}

ModuleScope::ModuleScope(std::string_view name, int64_t index, std::source_location where) noexcept
    : saved_(TraceContext::current().place) {
  enter(name, index, where);
}

void ModuleScope::enter(std::string_view name, int64_t index, const std::source_location& where) noexcept {
  if (!TraceRecorder::is_on() && !TraceContext::current().keeps_places) [[likely]]
    return;
  try {
    TraceContext::current().place =
        intern_module(saved_, index < 0 ? std::string(name) : fmt::format("{}.{}", name, index), where);
  } catch (const std::bad_alloc&) {
    // The events then stand in the module around.
  }
}

}  // namespace tutti
