// How a package is made: every combination of sizes is traced, run and written; then the file is opened by what will
// open it elsewhere, and every combination runs again.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>

#include "tutti/deploy/package.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/package/draft.h"
#include "tutti/package/held_state.h"
#include "tutti/package/package.h"
#include "tutti/package/rank_agreement.h"
#include "tutti/package/traced_plan.h"
#include "tutti/package/trial_calls.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostCombinations = 1 << 16;  // that a manifest may have

// The groups by their names; `complaint` says what is wrong with one of them, which is then left out.
deploy::BoundGroups bound_groups(const PackageOptions& options, std::string& complaint) {
  deploy::BoundGroups groups;
  for (const std::shared_ptr<deploy::RankGroup>& group : options.groups) {
    if (group == nullptr) {
      complaint = fmt::format("package: '{}': a group is null", options.name);
      continue;
    }
    const std::string name = group->name();
    const auto is_same = [&](const deploy::BoundGroup& g) { return g.name == name; };
    if (name.empty() || std::any_of(groups.begin(), groups.end(), is_same))
      complaint = fmt::format(
          "package: '{}': a group named '{}' has no name, or that of another one; give each process group once, by "
          "comm::rank_group()",
          options.name, name);
    else groups.push_back({name, group});
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
    bool has_name = false;
    try {
      draft_.write(unproved, report_);
      prove(unproved);
      ranks_.part("its name", [&] {
        fs::rename(unproved, path);
        has_name = true;
      });
    } catch (...) {
      std::error_code ignored;
      fs::remove(has_name ? path : unproved, ignored);
      throw;
    }
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    report_.ms = elapsed.count();
    return report_;
  }

 private:
  // Ranks that write to one path, of whichever hosts and groups, have names of their own.
  std::string unproved_name(const std::string& path) const {
    static std::atomic<int> count = 0;
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    return groups_.empty() ? path + ".unproved" : fmt::format("{}.{}.{}.{}.unproved", path, host, getpid(), ++count);
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
      manifest_.sizes.push_back(
          {s.name, s.least, s.least + (s.most - s.least) / s.step * s.step, s.step, place_apart_from(s)});
    }
    TUTTI_CHECK(options_.most_combinations >= 1 && options_.most_combinations <= kMostCombinations,
                "package: '{}': most_combinations is {}; it may be from 1 to {}", options_.name,
                options_.most_combinations, kMostCombinations);
    TUTTI_CHECK(manifest_.points() <= options_.most_combinations,
                "package: '{}': the declared sizes have {} combinations, and each is proved; most_combinations is {}. "
                "Declare narrower ranges or larger steps",
                options_.name, manifest_.points(), options_.most_combinations);
  }

  // -1: none.
  int32_t place_apart_from(const PackagedSize& size) const {
    if (size.apart_from.empty()) return -1;
    const auto is_it = [&](const deploy::PackageSize& s) { return s.name == size.apart_from; };
    const auto found = std::find_if(manifest_.sizes.begin(), manifest_.sizes.end(), is_it);
    const auto place = static_cast<int32_t>(found - manifest_.sizes.begin());
    const auto is_taken = [&](const deploy::PackageSize& s) { return s.apart_from == place; };
    TUTTI_CHECK(found != manifest_.sizes.end() && found->apart_from < 0 &&
                    std::none_of(manifest_.sizes.begin(), manifest_.sizes.end(), is_taken),
                "package: '{}': '{}' is apart from '{}'; name a size before it, which is apart from none, and from "
                "which no other one is",
                options_.name, size.name, size.apart_from);
    return place;
  }

  std::string declared() const {
    std::string text = options_.name;
    for (const deploy::PackageSize& s : manifest_.sizes)
      text += fmt::format(", {} from {} to {} by {}", s.name, s.least, s.most, s.step);
    if (!runs_here()) text += ", on a processor that none of its levels is for";
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
    ranks_.part(place + ", traced", [&] {
      TracedPlan traced =
          trace_plan(options_.name, trials_.arguments_at(point), fn_, options_.gradients, state_, groups_);
      state_.restore();
      plan = draft_.add(std::move(traced), constants);
    });
    ranks_.part(place + ", planned", [&] {
      const deploy::PlanRunner runner(std::move(plan));
      check_bits(point, trials_.of_plan(point, runner, constants, draft_.requested));
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

  void check_bits(int64_t point, const std::string& digest) const {
    if (digest == live_[static_cast<size_t>(point)]) return;
    throw InternalError(fmt::format(
        "package: {}: the plan gives other bits than the function. It must be a function of its arguments and of "
        "PackageOptions::state; what the program itself changes from call to call, such as the number of a step, must "
        "be among them and stay as it is during the call. If it does, please report this",
        place_of(point)));
  }

  void prove(const std::string& path) {
    std::shared_ptr<deploy::Package> package;
    ranks_.part("its file, opened", [&] {
      package =
          deploy::Package::open(path, runs_here() ? deploy::Package::Purpose::run : deploy::Package::Purpose::look);
      package->check_all_plans();
    });
    std::vector<std::shared_ptr<deploy::RankGroup>> ranks;
    for (const deploy::PackageGroup& g : manifest_.groups) ranks.push_back(draft_.group_named(g.name));
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
  Draft draft_{options_, state_, groups_, ranks_};
  deploy::Manifest& manifest_ = draft_.manifest;
  const TrialCalls trials_{examples_, fn_, options_, manifest_, state_, groups_};
  std::vector<std::string> live_;  // per point: the digest of the calls of the function
  PackageReport report_;
};

}  // namespace

PackageReport make(const std::string& path, const graph::Leaves& arguments, graph::TraceFn fn,
                   const PackageOptions& options) {
  std::string complaint;
  const deploy::BoundGroups groups = bound_groups(options, complaint);
  const RankAgreement ranks(groups);
  std::optional<Packager> packager;
  ranks.part("its options", [&] {
    TUTTI_CHECK(complaint.empty(), "{}", complaint);
    packager.emplace(arguments, fn, options, groups, ranks);
  });
  return packager->make(path);
}

}  // namespace tutti::package_detail
