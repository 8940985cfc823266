#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inspect_package.h"
#include "cli/packaged_call.h"
#include "tutti/core/blake2b.h"
#include "tutti/core/error.h"
#include "tutti/deploy/package.h"
#include "tutti/io/file_signature.h"
#include "tutti/models/package_file.h"
#include "tutti/package/package.h"
#include "tutti/train/package_text.h"

namespace tutti::cli {
namespace {

using deploy::Package;

struct PackageFlags {
  std::string model, target, dtype = "f32";
  train::PackageTextOptions text;
  std::string file;
  std::vector<std::string> sizes;
  int64_t repeats = 1;
  bool plans = false, json = false;
  std::string sign_key, public_key, signature;  // files
};

// Where the signature of a package is, unless --signature names another file.
std::string signature_of(const std::string& file, const std::string& named) {
  return named.empty() ? file + ".sig" : named;
}

nlohmann::ordered_json to_json(const Package& package) {
  const deploy::Manifest& m = package.manifest();
  nlohmann::ordered_json line = {{"function", m.function},
                                 {"made_by", m.made_by},
                                 {"numerics_version", m.numerics_version},
                                 {"combinations", m.points()},
                                 {"kernels", package.kernels().size()},
                                 {"constants", m.constants.size()},
                                 {"constant_bytes_before", m.constant_nbytes},
                                 {"file_bytes", package.file().nbytes()}};
  for (const deploy::PackageArgument& input : m.inputs) line["inputs"].push_back(text_of(m, input));
  for (const DType dtype : m.outputs) line["outputs"].push_back(name_of(dtype));
  for (const deploy::PackageStateTensor& t : m.state)
    line["state"].push_back({{"name", t.name},
                             {"dtype", name_of(t.dtype)},
                             {"sizes", std::vector<int64_t>(t.sizes.begin(), t.sizes.end())}});
  for (const deploy::PackageSize& s : m.sizes)
    line["sizes"].push_back({{"name", s.name}, {"least", s.least}, {"most", s.most}, {"step", s.step}});
  for (const codegen::CpuTarget level : m.levels)
    line["levels"].push_back({{"name", name_of(level)}, {"features", deploy::features_of(level)}});
  for (const deploy::PackageOp& op : m.ops)
    line["ops"].push_back({{"name", op.name}, {"schema", fmt::format("{:016x}", op.schema)}});
  for (const deploy::PackageGroup& g : m.groups)
    line["groups"].push_back({{"name", g.name}, {"ranks", g.ranks}, {"rank", g.rank}});
  if (!m.groups.empty()) line["collectives"] = collectives_of(m);
  for (const deploy::PackageNamedConstant& c : m.named_constants)
    line["named_constants"].push_back({{"name", c.name},
                                       {"dtype", name_of(c.dtype)},
                                       {"sizes", std::vector<int64_t>(c.sizes.begin(), c.sizes.end())}});
  for (const deploy::Section& s : package.file().sections())
    line["sections"].push_back({{"name", name_of(s.kind)}, {"level", name_of(s.level)}, {"bytes", s.bytes.size()}});
  return line;
}

int run_make(const PackageFlags& flags) {
  TUTTI_CHECK(!flags.target.empty(),
              "package: give a model and a new folder for its package, or inspect, verify, sign or run and a package");
  train::PackageTextOptions options = flags.text;
  options.dtype = dtype_from_name(flags.dtype);
  if (!flags.sign_key.empty()) check_signing_key(flags.sign_key);
  const PackageReport report = train::write_packaged_text(flags.model, flags.target, options);
  std::printf("%s/%s: %lld bytes, %lld kernels, %lld combinations of sizes proved in %.1f s\n", flags.target.c_str(),
              models::kPackageFile, static_cast<long long>(report.file_nbytes), static_cast<long long>(report.kernels),
              static_cast<long long>(report.combinations), report.ms / 1000);
  std::printf("constants and state: %lld bytes, %lld before equal ones were put together\n",
              static_cast<long long>(report.constant_nbytes), static_cast<long long>(report.constant_nbytes_before));
  if (flags.sign_key.empty()) return 0;
  const std::string file = fmt::format("{}/{}", flags.target, models::kPackageFile);
  sign_file(file, flags.sign_key, signature_of(file, ""));
  std::printf("signature: %s\n", signature_of(file, "").c_str());
  return 0;
}

int run_sign(const PackageFlags& flags) {
  Package::open(flags.file, Package::Purpose::look);  // no damaged file is signed
  const std::string signature = signature_of(flags.file, flags.signature);
  for (const std::string& input : {flags.file, flags.sign_key}) {
    std::error_code absent;
    TUTTI_CHECK(
        !std::filesystem::equivalent(signature, input, absent),
        "package sign: the signature would take the place of {}; give --signature another file, or leave it out "
        "for {}.sig",
        input, flags.file);
  }
  sign_file(flags.file, flags.sign_key, signature);
  if (flags.json)
    std::printf("%s\n", nlohmann::ordered_json{{"path", flags.file}, {"signature", signature}}.dump().c_str());
  else std::printf("%s: signature of %s\n", signature.c_str(), flags.file.c_str());
  return 0;
}

int run_inspect(const PackageFlags& flags) {
  const auto package = Package::open(flags.file, Package::Purpose::look);
  if (flags.json) std::printf("%s\n", to_json(*package).dump().c_str());
  else std::printf("%s", text_of_package(*package, flags.plans).c_str());
  return 0;
}

int run_verify(const PackageFlags& flags) {
  TUTTI_CHECK(flags.signature.empty() || !flags.public_key.empty(),
              "package verify: --signature is checked with a key; give --public-key public.pem");
  const std::string signature = flags.public_key.empty() ? "" : signature_of(flags.file, flags.signature);
  TUTTI_CHECK_ENV(
      signature.empty() || std::filesystem::exists(signature),
      "{} has no signature {}; get it from who made the package, name it with --signature, or make it: tutti "
      "package sign {} --key private.pem",
      flags.file, signature, flags.file);
  if (!signature.empty()) verify_signature(flags.file, flags.public_key, signature);
  const auto package = Package::open(flags.file, Package::Purpose::look);
  package->check_all_plans();
  const int64_t points = package->manifest().points();
  if (flags.json) {
    nlohmann::ordered_json line = {{"path", flags.file}, {"combinations", points}};
    if (!signature.empty()) line["signature"] = signature;
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("%s: whole, plans of %lld combinations of sizes\n", flags.file.c_str(), static_cast<long long>(points));
  if (!signature.empty())
    std::printf("%s: signed with the private key of %s\n", signature.c_str(), flags.public_key.c_str());
  return 0;
}

int run_run(const PackageFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  const std::string file = file_of_rank(flags.file);
  const auto package = Package::open(file);
  const std::shared_ptr<void> joined = join_ranks(*package, file);
  const deploy::Manifest& manifest = package->manifest();
  const std::vector<Tensor> arguments = pattern_arguments(manifest, flags.sizes);
  std::vector<Tensor> results;
  const std::shared_ptr<deploy::PackageState> state = manifest.state.empty() ? nullptr : package->new_state();
  const auto call = [&] { return state ? package->run(*state, arguments) : package->run(arguments); };
  results = call();
  const double first_ms = ms_since(start);
  double best_ms = first_ms;
  for (int64_t i = 0; i < flags.repeats; ++i) {
    const Clock::time_point begin = Clock::now();
    results = call();
    best_ms = std::min(best_ms, ms_since(begin));
  }
  nlohmann::ordered_json line;
  if (joined) line["rank"] = *number_of_rank();
  line["first_result_ms"] = first_ms, line["call_ms"] = best_ms;
  const std::string who = joined ? fmt::format("rank {}: ", *number_of_rank()) : "";
  for (const Tensor& result : results) {
    const Tensor t = to_contiguous(result);
    Blake2b hash(16);
    hash.add({static_cast<const char*>(t.raw_data()), static_cast<size_t>(t.nbytes())});
    std::string digest;
    for (const char c : hash.finish()) digest += fmt::format("{:02x}", static_cast<unsigned char>(c));
    line["results"].push_back({{"dtype", name_of(t.dtype())},
                               {"sizes", std::vector<int64_t>(t.extents().begin(), t.extents().end())},
                               {"digest", digest}});
    if (!flags.json)
      std::printf("%s%s %s %s\n", who.c_str(), std::string(name_of(t.dtype())).c_str(), to_string(t.extents()).c_str(),
                  digest.c_str());
  }
  if (flags.json) std::printf("%s\n", line.dump().c_str());
  else std::printf("%sopen to first result %.2f ms, then %.4f ms a call\n", who.c_str(), first_ms, best_ms);
  return 0;
}

}  // namespace

void add_package(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "package",
      "Package a published model or a run for texts without a compiler; look into packages, sign and run them");
  verb->require_subcommand(0, 1);
  auto flags = std::make_shared<PackageFlags>();
  verb->add_option("model", flags->model,
                   "Published model, that is a folder with config.json or a GGUF file; or the folder of a run");
  verb->add_option("target", flags->target, "New folder for the package, which `tutti generate` takes as a model");
  verb->add_option("--context", flags->text.context, "Tokens of a text")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  verb->add_option("--texts", flags->text.texts, "Texts that are written at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 128));
  verb->add_option("--dtype", flags->dtype, "In which the model computes: f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  verb->add_flag("--quantized", flags->text.keep_blocks,
                 "Compute with the quantized weights of a GGUF file as they are");
  verb->add_option("--sign-key", flags->sign_key, "Also sign the package with this key, see tutti package sign");
  verb->callback([flags, verb, &action] {
    if (!verb->get_subcommands().empty()) return;
    action = [flags] { return run_make(*flags); };
  });
  const auto add = [&](const char* name, const char* text, int (*run)(const PackageFlags&)) {
    CLI::App* sub = verb->add_subcommand(name, text);
    sub->add_option("file", flags->file, "Package, as tutti::package() writes it")->required();
    sub->callback([flags, run, &action] { action = [flags, run] { return run(*flags); }; });
    return sub;
  };
  CLI::App* inspect = add("inspect", "Tell what a package holds; runs nothing of it", run_inspect);
  inspect->add_flag("--plans", flags->plans, "Also the steps of the first combination of sizes");
  inspect->add_flag("--json", flags->json, "One object");
  CLI::App* verify = add(
      "verify", "Check every byte and the plans of all sizes; runs nothing of it. Exit status 0: whole", run_verify);
  verify->add_option("--public-key", flags->public_key, "Also check who signed it: a public key of Ed25519, in PEM");
  verify->add_option("--signature", flags->signature, "File of the signature (default: FILE.sig)");
  verify->add_flag("--json", flags->json, "One object: path, combinations, signature");
  CLI::App* sign = add("sign", "Write FILE.sig, the signature of a whole package", run_sign);
  sign->add_option("--key", flags->sign_key, "Private key of Ed25519, in PEM, as openssl genpkey writes it")
      ->required();
  sign->add_option("--signature", flags->signature, "File to write (default: FILE.sig)");
  sign->add_flag("--json", flags->json, "One object: path, signature");
  CLI::App* run =
      add("run", "Call the function on arguments of a fixed pattern: dtype, sizes and digest of each result", run_run);
  run->add_option("--size", flags->sizes, "NAME=NUMBER, a declared size (default: its least value); may be repeated");
  run->add_option("--repeats", flags->repeats, "Further calls that are timed, of which the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  run->add_flag("--json", flags->json,
                "One object: first_result_ms, call_ms, results; of ranks that a launcher has started, rank");
}

}  // namespace tutti::cli
