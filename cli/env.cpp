#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "tutti/codegen/gemm/library.h"
#include "tutti/codegen/kernel.h"
#include "tutti/comm/transports.h"
#include "tutti/job/distributed.h"
#include "tutti/runtime/cache_folder.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/report/machine.h"

namespace tutti::cli {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Engines mark their containers with a file; inside, the host name is that of the container.
std::string container() {
  if (access("/.dockerenv", F_OK) == 0) return "docker " + host_name();
  if (access("/run/.containerenv", F_OK) == 0) return "podman " + host_name();
  return "none";
}

std::string cpu_features() {
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (has) text += std::string(text.empty() ? "" : " ") + name;
  };
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vl"), "avx512vl");
  add(__builtin_cpu_supports("avx512dq"), "avx512dq");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
  return text;
}

struct Part {
  std::string name;
  bool on;
  std::string why;
};

std::vector<Part> parts() {
  std::vector<Part> all = {{"cpu kernels through LLVM", true, "LLVM " TUTTI_LLVM_VERSION}};
  const std::string why_alone(comm::why_not_distributed());
  all.push_back(
      {"distributed", why_alone.empty(),
       why_alone.empty()
           ? "ranks as processes, here and on other hosts"
           : "lost: ranks as processes (-n, launch), stores over TCP, other hosts, GPU engines; " + why_alone});
  for (const comm::TransportInfo& info : comm::known_transports()) {
    const std::string note = comm::note_on_transport(info.name), use = note.empty() ? info.use : info.use + "; " + note;
    all.push_back({"transport " + info.name, info.available, info.available ? use : info.why_not});
  }
  for (const codegen::GemmLibrary* library : codegen::gemm_libraries())
    all.push_back({library->name, true, "products that numerics.mode = \"fast\" may take"});
  for (const std::string& why : codegen::closed_gemm_libraries()) all.push_back({"products of a library", false, why});
  if (codegen::gemm_libraries().empty() && codegen::closed_gemm_libraries().empty())
    all.push_back({"products of other libraries", false,
                   "neither libtutti_onednn.so nor libtutti_openblas.so is next to the program or in lib/: their "
                   "packages were missing when this was built, or they were not installed"});
  all.push_back(
      {"GPU kernels (cuda)", false, "not part of this version; nccl moves GPU tensors that a program brings"});
  all.push_back({"mock device", true, "for tests"});
  return all;
}

struct Variable {
  const char* name;
  const char* meaning;
};
constexpr Variable kVariables[] = {
    {"TUTTI_CPU", "instruction set of kernels: avx2, avx512, avx512vnni or avx512bf16"},
    {"TUTTI_THREADS", "threads of one rank"},
    {"TUTTI_CACHE_DIR", "where kernels, tokenizers and tokenized data are kept"},
    {"TUTTI_CACHE_LIMIT_MB", "size that the kernel cache may reach"},
    {"TUTTI_CHECK_EFFECTS", "1: find kernels that change inputs without declaring it"},
    {"TUTTI_CHECK_EPILOGUES", "1: compare kernels inside matrix products with the same kernels after them"},
    {"TUTTI_CHECK_PASSES", "1: check what compile() makes after each of its passes"},
    {"TUTTI_COMPILE_DUMP", "folder for the stages of what compile() makes"},
    {"TUTTI_COMPILE_DUMP_PASSES", "passes of compile() whose results are dumped too, or all"},
    {"TUTTI_GEMM_CHOICE",
     "who computes a matrix product and in which tiles: heuristic, or measure; further options as name=value after "
     "commas"},
    {"TUTTI_LLVM_PLUGIN", "path of the code generator library"},
    {"TUTTI_TRANSPORT", "how ranks exchange data: a transport, or by kind of device as cpu:shm,cuda:nccl"},
    {"TUTTI_SINGLE_COPY", "0: transport shm never has the kernel copy large tensors from process to process"},
    {"TUTTI_POISON_EXPERT_ROWS", "1: fill buffers of rows for experts with NaN after their last read"},
    {"TUTTI_SYMM_BACKEND", "who makes symmetric memory: native, threads, cuda, nccl, nvshmem"},
    {"TUTTI_SYMM_TUNING", "table of algorithms that `tutti bench comm --tune` wrote"},
    {"TUTTI_DTENSOR_COSTS", "costs of redistributions that `tutti bench comm --costs` measured"},
    {"TUTTI_COMM_CHECK_NAN", "1: look for NaN and infinity in the inputs of collectives"},
    {"TUTTI_FLIGHT_RECORDER_DUMP", "where the last calls of a rank are written when a group fails: this and its rank"},
    {"TUTTI_FLIGHT_RECORDER_ENTRIES", "how many calls are kept"},
    {"TUTTI_JOB_KEY", "secret of the ranks of a job on several hosts"},
    {"TUTTI_JOB_KEY_FILE", "file that holds it"},
    {"TUTTI_HOST_ID", "tells apart ranks that share a kernel but not memory: those with other ids are on other hosts"},
    {"TUTTI_STORE_PORT", "where rank 0 serves the store, if not at MASTER_PORT"},
    {"GLOO_SOCKET_IFNAME", "network interface of transport gloo"},
    {"NO_COLOR", "no colour on a terminal"},
    {"XDG_CACHE_HOME", "parent of the cache folder when TUTTI_CACHE_DIR is unset"},
};

// Never shown: what is printed here ends up in reports of bugs and in logs.
constexpr const char* kSecrets[] = {"TUTTI_JOB_KEY"};

// "" when unset.
std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return "";
  const bool is_secret = std::any_of(std::begin(kSecrets), std::end(kSecrets),
                                     [&](const char* secret) { return std::strcmp(secret, name) == 0; });
  return is_secret ? "(set, not shown)" : value;
}

int run_env(bool as_json) {
  std::vector<std::pair<std::string, std::string>> facts = {{"version", TUTTI_VERSION},
                                                            {"host", host_name()},
                                                            {"machine_id", first_line("/etc/machine-id")},
                                                            {"container", container()}};
  for (const auto& [name, value] : train::machine_facts()) facts.push_back({name, value});
  facts.push_back({"CPU features", cpu_features()});
  facts.push_back({"Threads", std::to_string(ThreadPool::current().threads())});
  facts.push_back({"LLVM", TUTTI_LLVM_VERSION});
  facts.push_back({"Cache", default_cache_folder().string()});
  std::vector<std::pair<std::string, std::string>> variables;
  for (const Variable& v : kVariables) variables.push_back({v.name, v.meaning});
  for (const train::Field& field : train::config_fields()) {
    if (!value_of(field.variable().c_str()).empty()) variables.push_back({field.variable(), field.doc});
  }
  if (as_json) {
    nlohmann::json out;
    for (const auto& [name, value] : facts) out["facts"][name] = value;
    for (const Part& p : parts()) out["parts"][p.name] = {{"on", p.on}, {"why", p.why}};
    for (const auto& [name, meaning] : variables)
      out["environment"][name] = {{"value", value_of(name.c_str())}, {"meaning", meaning}};
    std::printf("%s\n", out.dump().c_str());
    return 0;
  }
  for (const auto& [name, value] : facts) std::printf("%-18s %s\n", name.c_str(), value.c_str());
  std::printf("\nParts\n");
  for (const Part& p : parts()) std::printf("  %-4s %-34s %s\n", p.on ? "on" : "off", p.name.c_str(), p.why.c_str());
  std::printf(
      "\nEnvironment variables that change behaviour (and TUTTI_<SECTION>_<KEY> for every key of the configuration)\n");
  for (const auto& [name, meaning] : variables)
    std::printf("  %-24s %-20s %s\n", name.c_str(),
                value_of(name.c_str()).empty() ? "(unset)" : value_of(name.c_str()).c_str(), meaning.c_str());
  return 0;
}

}  // namespace

void add_env(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb =
      app.add_subcommand("env", "Show this machine, what is on, why something is off, and the environment variables");
  verb->add_flag("--json", *json, "One object: facts, parts, environment");
  verb->callback([json, &action] { action = [json] { return run_env(*json); }; });
}

}  // namespace tutti::cli
