#include "tutti/runtime/trace/source_lines.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace tutti {
namespace {

// Code that programs call, and not theirs: the call into it is what they wrote. A sanitizer stands in front of
// backtrace().
bool is_ours(std::string_view file) {
  if (file.starts_with("/usr/")) return true;
  for (const char* part :
       {"/sanitizer_common/", "/sysdeps/", "/csu/", "/nptl/"}) {  // the C library calls main() and threads
    if (file.find(part) != std::string_view::npos) return true;
  }
  for (const char* room : {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "comm", "nn"}) {
    if (file.find(fmt::format("/tutti/{}/", room)) != std::string_view::npos) return true;
  }
  return false;
}

// "tutti::models::Qwen3::block_forward(...) const" -> "block_forward"; "" for templates, whose names say little.
std::string short_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                              &std::free);
  std::string name = status == 0 ? demangled.get() : symbol;
  if (const size_t lambda = name.find("::{lambda"); lambda != std::string::npos) name.resize(lambda);
  if (const size_t arguments = name.find('('); arguments != std::string::npos && arguments > 0) name.resize(arguments);
  if (name.find('<') != std::string::npos) return "";
  const size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

// The line tables of this process, opened at the first question.
class LineTables {
 public:
  // "" when the address is in our code or unknown.
  std::string line_of(void* return_address) {
    std::lock_guard lock(mutex_);
    const auto [it, is_new] = known_.try_emplace(return_address);
    if (is_new) it->second = look_up(return_address);
    return it->second;
  }

 private:
  std::string look_up(void* return_address) {
    const auto address = reinterpret_cast<Dwarf_Addr>(return_address) - 1;  // inside the call
    Dwfl_Module* module = module_of(address);
    if (module == nullptr) return "";
    Dwfl_Line* line = dwfl_module_getsrc(module, address);
    if (line == nullptr) return "";
    int number = 0;
    const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    if (file == nullptr || is_ours(file)) return "";
    const char* symbol = dwfl_module_addrname(module, address);
    const std::string function = symbol ? short_name(symbol) : "";
    const std::string_view path(file);
    return fmt::format("{}:{}{}", path.substr(path.rfind('/') + 1), number,
                       function.empty() ? "" : " (" + function + ")");
  }

  Dwfl_Module* module_of(Dwarf_Addr address) {
    if (Dwfl_Module* module = session_ ? dwfl_addrmodule(session_.get(), address) : nullptr) return module;
    // A library may have been opened since.
    static char* debug_path = nullptr;
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .section_address = nullptr,
                                             .debuginfo_path = &debug_path};
    session_.reset(dwfl_begin(&callbacks));
    if (!session_ || dwfl_linux_proc_report(session_.get(), getpid()) != 0 ||
        dwfl_report_end(session_.get(), nullptr, nullptr) != 0)
      return nullptr;
    return dwfl_addrmodule(session_.get(), address);
  }

  std::mutex mutex_;
  std::unique_ptr<Dwfl, decltype(&dwfl_end)> session_{nullptr, &dwfl_end};
  std::unordered_map<void*, std::string> known_;
};

LineTables& line_tables() {
  static auto* tables = new LineTables;  // threads may ask while the process ends
  return *tables;
}

}  // namespace

CallSite call_site() noexcept {
  CallSite site;
  site.count = backtrace(site.frames.data(), static_cast<int>(site.frames.size()));
  return site;
}

std::string user_line(const CallSite& site) {
  for (int i = 0; i < site.count; ++i) {
    if (std::string line = line_tables().line_of(site.frames[static_cast<size_t>(i)]); !line.empty()) return line;
  }
  return "";
}

}  // namespace tutti
