// How a package is made: every combination of sizes is traced, run and written; then the file is opened by what will
// open it elsewhere, and every combination runs again.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "tutti/autograd/tape.h"
#include "tutti/codegen/generator_sources.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/codegen/library_kernels.h"
#include "tutti/core/blake2b.h"
#include "tutti/core/numerics_version.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/deploy/package.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/package/constant_pool.h"
#include "tutti/package/held_state.h"
#include "tutti/package/package.h"
#include "tutti/package/rank_agreement.h"
#include "tutti/package/refusals.h"
#include "tutti/package/traced_plan.h"
#include "tutti/package/trial_calls.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostCombinations = 1 << 16;  // that a manifest may have

deploy::BoundGroups bound_groups(const PackageOptions& options) {
  deploy::BoundGroups groups;
  for (const std::shared_ptr<deploy::RankGroup>& group : options.groups) {
    TUTTI_CHECK(group != nullptr, "package: '{}': a group is null", options.name);
    const std::string name = group->name();
    const auto is_same = [&](const deploy::BoundGroup& g) { return g.name == name; };
    TUTTI_CHECK(!name.empty() && std::none_of(groups.begin(), groups.end(), is_same),
                "package: '{}': a group named '{}' has no name, or that of another one; give each process group once, "
                "by comm::rank_group()",
                options.name, name);
    groups.push_back({name, group});
  }
  return groups;
}

class Packager {
 public:
  // All must outlive it.
  Packager(const graph::Leaves& arguments, graph::TraceFn fn, const PackageOptions& options,
           const deploy::BoundGroups& groups, const RankAgreement& ranks)
      : options_(options),
        examples_(arguments.tensors),
        fn_(fn),
        groups_(groups),
        ranks_(ranks),
        state_(options.state, options.name) {
    TUTTI_CHECK(numerics_mode() == NumericsMode::strict,
                "package: '{}': packages are strict; call it where the numerics mode is strict", options_.name);
    TUTTI_CHECK(arguments.sizes.empty() && arguments.keys.empty(),
                "package: '{}' cannot be packaged: it takes a SymInt or a RandomKey; arguments of packages are tensors",
                options_.name);
    declare_inputs();
    declare_sizes();
    manifest_.levels = options_.levels;
    std::sort(manifest_.levels.begin(), manifest_.levels.end());
    TUTTI_CHECK(!manifest_.levels.empty(), "package: '{}': levels is empty", options_.name);
  }

  PackageReport make(const std::string& path) {
    const auto start = std::chrono::steady_clock::now();
    ranks_.part(declared(), [] {});
    for (int64_t point = 0; point < manifest_.points(); ++point) add_point(point);
    const std::string unproved = unproved_name(path);
    try {
      write(unproved);
      prove(unproved);
    } catch (...) {
      std::error_code ignored;
      fs::remove(unproved, ignored);
      throw;
    }
    ranks_.part("its name", [&] { fs::rename(unproved, path); });
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    report_.ms = elapsed.count();
    return report_;
  }

 private:
  // Of this rank alone, wherever ranks write.
  std::string unproved_name(std::string path) const {
    if (!groups_.empty()) path += fmt::format(".{}", getpid());
    for (const deploy::BoundGroup& g : groups_) path += fmt::format(".{}", g.ranks->rank());
    return path + ".unproved";
  }

  void declare_inputs() {
    manifest_.function = options_.name;
    for (size_t i = 0; i < examples_.size(); ++i) {
      const Tensor& t = examples_[i];
      const std::string what = fmt::format("argument {}", i);
      TUTTI_CHECK(wrapper_of(t) == nullptr, "package: '{}' cannot be packaged: {} is {}, which is no plain tensor",
                  options_.name, what, describe(t));
      deploy::PackageArgument input{t.dtype(), {}};
      for (const int64_t size : t.extents()) input.dims.push_back({-1, size});
      manifest_.inputs.push_back(std::move(input));
    }
  }

  void declare_sizes() {
    for (const PackagedSize& s : options_.dynamic) {
      TUTTI_CHECK(s.least >= 0 && s.step > 0 && s.most >= s.least,
                  "package: '{}': '{}' is from {} to {} in steps of {}; give 0 <= least <= most and a step from 1",
                  options_.name, s.name, s.least, s.most, s.step);
      TUTTI_CHECK(!s.dims.empty(), "package: '{}': '{}' is the size of no dim; give its dims", options_.name, s.name);
      for (const PackagedSize::Dim& d : s.dims) {
        TUTTI_CHECK(d.tensor >= 0 && static_cast<size_t>(d.tensor) < examples_.size(),
                    "package: '{}': '{}' is a size of tensor {}, and the example has {}", options_.name, s.name,
                    d.tensor, examples_.size());
        auto& dims = manifest_.inputs[static_cast<size_t>(d.tensor)].dims;
        const int dim = normalize_dim(d.dim, static_cast<int>(dims.size()), "package");
        deploy::PackageDim& place = dims[static_cast<size_t>(dim)];
        TUTTI_CHECK(place.symbol < 0, "package: '{}': dim {} of tensor {} is declared twice", options_.name, dim,
                    d.tensor);
        place.symbol = static_cast<int32_t>(manifest_.sizes.size());
      }
      manifest_.sizes.push_back({s.name, s.least, s.least + (s.most - s.least) / s.step * s.step, s.step});
    }
    TUTTI_CHECK(options_.most_combinations >= 1 && options_.most_combinations <= kMostCombinations,
                "package: '{}': most_combinations is {}; it may be from 1 to {}", options_.name,
                options_.most_combinations, kMostCombinations);
    TUTTI_CHECK(manifest_.points() <= options_.most_combinations,
                "package: '{}': the declared sizes have {} combinations, and each is proved; most_combinations is {}. "
                "Declare narrower ranges or larger steps",
                options_.name, manifest_.points(), options_.most_combinations);
  }

  std::string declared() const {
    std::string text = options_.name;
    for (const deploy::PackageSize& s : manifest_.sizes)
      text += fmt::format(", {} from {} to {} by {}", s.name, s.least, s.most, s.step);
    return text;
  }

  std::string place_of(int64_t point) const {
    const std::vector<int64_t> sizes = manifest_.sizes_of(point);
    std::string text = options_.name;
    for (size_t i = 0; i < sizes.size(); ++i) text += fmt::format(", {} = {}", manifest_.sizes[i].name, sizes[i]);
    return text;
  }

  void add_point(int64_t point) {
    const std::string place = place_of(point);
    ranks_.part(place + ", called", [&] { call_function(point); });
    deploy::Plan plan;
    std::vector<Tensor> constants;
    ranks_.part(place + ", traced", [&] { plan = plan_of(point, constants); });
    ranks_.part(place + ", planned", [&] {
      const deploy::PlanRunner runner(std::move(plan));
      check_bits(point, trials_.of_plan(point, runner, constants, requested_));
    });
  }

  void call_function(int64_t point) {
    TrialCalls::Outcome live = trials_.of_function(point);
    TUTTI_CHECK(manifest_.outputs.empty() || manifest_.outputs == live.outputs,
                "package: '{}': results have other dtypes for other sizes", place_of(point));
    manifest_.outputs = std::move(live.outputs);
    live_.push_back(std::move(live.digest));
    state_.restore();
  }

  // Communicates with nobody.
  deploy::Plan plan_of(int64_t point, std::vector<Tensor>& constants) {
    TracedPlan traced =
        trace_plan(options_.name, trials_.arguments_at(point), fn_, options_.gradients, state_, groups_);
    state_.restore();
    if (steps_.empty()) steps_ = traced.steps;
    constants.resize(traced.held.size());
    for (deploy::PlanSource& s : traced.plan.sources) {
      if (s.kind != deploy::PlanSource::Kind::constant) continue;
      const Tensor& constant = traced.held[static_cast<size_t>(s.index)];
      s.index = constants_.number_of(constant);
      constants.resize(std::max(constants.size(), static_cast<size_t>(s.index) + 1));
      constants[static_cast<size_t>(s.index)] = constant;
    }
    for (const OpDef* op : traced.ops) ops_.insert(op);
    note_written(traced.plan);
    note_dtypes(traced.plan);
    note_groups(traced.plan);
    words_.push_back(to_words(traced.plan, texts_, specs_));
    return std::move(traced.plan);
  }

  void note_written(const deploy::Plan& plan) {
    for_each_written_source(plan, [&](const deploy::PlanSource& source) {
      if (source.kind == deploy::PlanSource::Kind::argument)
        manifest_.inputs[static_cast<size_t>(source.index)].is_written = true;
    });
  }

  // Which kernels calls choose while they run depends on the dtypes of their operands.
  void note_dtypes(const deploy::Plan& plan) {
    for (const graph::Step& step : plan.steps) {
      const auto* call = std::get_if<graph::CallStep>(&step);
      if (call == nullptr || call->op->kernel == nullptr || call->check_only) continue;
      for (const auto* values : {&call->inputs, &call->outputs}) {
        for (const graph::Value& v : *values) library_dtypes_.insert(v.dtype);
      }
    }
    for (const deploy::PlanControl& control : plan.controls) {
      for (const deploy::Plan& part : control.plans) note_dtypes(part);
    }
  }

  void note_groups(const deploy::Plan& plan) {
    for (const graph::Step& step : plan.steps) {
      const auto* call = std::get_if<graph::CallStep>(&step);
      if (call == nullptr || call->node >= 0 || !call->op->ordered) continue;
      used_groups_.insert(*call->attrs.as<deploy::CallAttrs>().group.name);
    }
    for (const deploy::PlanControl& control : plan.controls) {
      for (const deploy::Plan& part : control.plans) note_groups(part);
    }
  }

  // Says in the manifest which ranks the file is for: those whose files would be equal share it.
  void join_groups(std::span<const deploy::Section> sections) {
    if (manifest_.groups.empty()) return;
    Blake2b own(deploy::kTogetherBytes);
    for (const deploy::Section& s : sections)
      own.add(fmt::format("{} {} ", name_of(s.kind), s.bytes.size())), own.add(s.bytes);
    const std::string digest = own.finish();
    for (deploy::PackageGroup& g : manifest_.groups) {
      deploy::RankGroup& ranks = *group_named(g.name);
      const std::vector<std::string> all = ranks.all_gather(digest);
      Blake2b together(deploy::kTogetherBytes);
      for (const std::string& each : all) together.add(each);
      g.together = together.finish();
      const bool is_equal = std::all_of(all.begin(), all.end(), [&](const std::string& d) { return d == digest; });
      g.rank = is_equal ? -1 : ranks.rank();
    }
  }

  const std::shared_ptr<deploy::RankGroup>& group_named(const std::string& name) const {
    const auto is_it = [&](const deploy::BoundGroup& g) { return g.name == name; };
    return std::find_if(groups_.begin(), groups_.end(), is_it)->ranks;
  }

  void check_bits(int64_t point, const std::string& digest) const {
    if (digest == live_[static_cast<size_t>(point)]) return;
    throw InternalError(fmt::format(
        "package: {}: the plan gives other bits than the function. It must be a function of its arguments and of "
        "PackageOptions::state; what the program itself changes from call to call, such as the number of a step, must "
        "be among them and stay as it is during the call. If it does, please report this",
        place_of(point)));
  }

  // The sections of the file but for the manifest, which names the groups when these have been compared.
  struct Contents {
    deploy::CodeWriter code;
    std::string plans, kernels;
  };

  Contents contents() {
    manifest_.made_by = TUTTI_VERSION;
    manifest_.numerics_version = kNumericsVersion;
    manifest_.generator = codegen::generator_sources();
    for (const OpDef* op : ops_) {
      const AttrsType* attrs = deploy::attrs_type_of(*op);
      manifest_.ops.push_back(
          {op->name, std::string(attrs == nullptr ? "" : attrs->name()), deploy::schema_of(*op, attrs)});
    }
    std::sort(manifest_.ops.begin(), manifest_.ops.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    manifest_.library_dtypes.assign(library_dtypes_.begin(), library_dtypes_.end());
    state_.declare(manifest_, constants_);
    for (const deploy::BoundGroup& g : groups_) {
      if (used_groups_.contains(g.name)) manifest_.groups.push_back({.name = g.name, .ranks = g.ranks->size()});
    }
    manifest_.constants = constants_.constants();
    name_constants();
    manifest_.constant_nbytes = static_cast<uint64_t>(constants_.nbytes_before());
    Contents made{.code = compile(), .plans = {}, .kernels = {}};
    deploy::PackagedPlans plans{.texts = texts_.texts(), .kernel_keys = {}, .formulas = {}};
    for (const auto& [key, spec] : specs_) plans.kernel_keys.push_back(key);
    for (const auto& [key, spec] : requested_) plans.kernel_keys.push_back(key);
    std::vector<deploy::Words> sizes;
    for (int64_t point = 0; point < manifest_.points(); ++point) sizes.push_back(manifest_.sizes_of(point));
    plans.formulas = deploy::encode_formulas(sizes, words_);
    made.plans = plans.to_bytes();
    made.kernels = made.code.table();
    return made;
  }

  void write(const std::string& path) {
    Contents made;
    ranks_.part("its contents", [&] { made = contents(); });
    const std::string without_ranks = manifest_.to_bytes();
    using Kind = deploy::SectionKind;
    std::vector<deploy::Section> sections = {
        {.kind = Kind::manifest, .bytes = without_ranks},
        {.kind = Kind::plans, .bytes = made.plans},
        {.kind = Kind::kernels, .bytes = made.kernels},
    };
    for (const auto& [level, bytes] : made.code.code()) {
      sections.push_back({.kind = Kind::code, .level = level, .bytes = bytes});
      report_.code_nbytes += static_cast<int64_t>(bytes.size());
    }
    sections.push_back({.kind = Kind::constants, .bytes = constants_.bytes()});
    sections.push_back({.kind = Kind::provenance, .bytes = steps_});
    join_groups(sections);
    const std::string manifest = manifest_.to_bytes();
    sections[0].bytes = manifest;
    ranks_.part("its file", [&] { write_sections(path, sections); });
    report_.kernels = static_cast<int64_t>(made.code.num_kernels());
    report_.combinations = manifest_.points();
    report_.constant_nbytes_before = constants_.nbytes_before();
    report_.constant_nbytes = static_cast<int64_t>(constants_.bytes().size());
  }

  void name_constants() {
    for (const PackagedConstant& c : options_.constants) {
      const Tensor held = inside_of(c.tensor);
      TUTTI_CHECK(state_.number_of(held) < 0,
                  "package: '{}': '{}' of the constants is in the memory of the function's state, which programs write "
                  "by PackageState::write() under its name in PackageOptions::state; leave it out of the constants",
                  options_.name, c.name);
      const int32_t constant = constants_.find(held);
      TUTTI_CHECK(constant >= 0, "package: '{}': '{}' of the constants is no tensor that the function holds",
                  options_.name, c.name);
      TUTTI_CHECK(held.is_contiguous(), "package: '{}': the constant '{}' is not contiguous; name a tensor that is",
                  options_.name, c.name);
      const auto is_same = [&](const deploy::PackageNamedConstant& other) { return other.name == c.name; };
      TUTTI_CHECK(std::none_of(manifest_.named_constants.begin(), manifest_.named_constants.end(), is_same),
                  "package: '{}': two constants are named '{}'", options_.name, c.name);
      manifest_.named_constants.push_back({c.name, held.dtype(), held.extents(), constant,
                                           static_cast<uint64_t>(held.offset() * itemsize(held.dtype()))});
    }
  }

  deploy::CodeWriter compile() const {
    deploy::CodeWriter code;
    for (const codegen::CpuTarget level : manifest_.levels) {
      const codegen::CpuTarget target = without_dots(level);
      for (const auto* specs : {&specs_, &requested_}) {
        for (const auto& [key, spec] : *specs)
          code.add(key, spec.name, target, codegen::process_kernel_cache().code(spec, target));
      }
      for (const codegen::LibraryKernelSpec& k : codegen::library_kernels(manifest_.library_dtypes, level))
        code.add(k.key(), k.name(), k.target, codegen::library_code(k));
    }
    return code;
  }

  void prove(const std::string& path) {
    std::shared_ptr<deploy::Package> package;
    ranks_.part("its file, opened", [&] {
      package =
          deploy::Package::open(path, runs_here() ? deploy::Package::Purpose::run : deploy::Package::Purpose::look);
      package->check_all_plans();
    });
    std::vector<std::shared_ptr<deploy::RankGroup>> ranks;
    for (const deploy::PackageGroup& g : manifest_.groups) ranks.push_back(group_named(g.name));
    if (!ranks.empty()) package->set_groups(ranks);
    for (int64_t point = 0; runs_here() && point < manifest_.points(); ++point)
      ranks_.part(place_of(point) + ", packaged", [&] { check_bits(point, trials_.of_package(point, *package)); });
    const deploy::WordFormulas::Counts counts = package->formula_counts();
    report_.constant_words = counts.constant;
    report_.polynomial_words = counts.polynomial;
    report_.table_words = counts.table;
    report_.file_nbytes = static_cast<int64_t>(package->file().nbytes());
  }

  bool runs_here() const {
    return std::find(manifest_.levels.begin(), manifest_.levels.end(), codegen::cpu_target()) != manifest_.levels.end();
  }

  const PackageOptions& options_;
  const std::vector<Tensor> examples_;
  const graph::TraceFn fn_;
  const deploy::BoundGroups& groups_;
  const RankAgreement& ranks_;
  const HeldState state_;
  deploy::Manifest manifest_;
  std::set<std::string> used_groups_;
  const TrialCalls trials_{examples_, fn_, options_, manifest_, state_, groups_};
  ConstantPool constants_;
  deploy::TextTable texts_;
  deploy::KernelSpecs specs_, requested_;
  std::vector<deploy::Words> words_;  // per point
  std::vector<std::string> live_;     // per point: the digest of the calls of the function
  std::set<const OpDef*> ops_;
  std::set<DType> library_dtypes_;
  std::string steps_;
  PackageReport report_;
};

}  // namespace

PackageReport make(const std::string& path, const graph::Leaves& arguments, graph::TraceFn fn,
                   const PackageOptions& options) {
  const deploy::BoundGroups groups = bound_groups(options);
  const RankAgreement ranks(groups);
  std::optional<Packager> packager;
  ranks.part("its options", [&] { packager.emplace(arguments, fn, options, groups, ranks); });
  return packager->make(path);
}

}  // namespace tutti::package_detail
