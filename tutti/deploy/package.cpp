#include "tutti/deploy/package.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "tutti/codegen/generator_sources.h"
#include "tutti/codegen/kernel_requests.h"
#include "tutti/codegen/library_kernels.h"
#include "tutti/core/numerics_version.h"
#include "tutti/deploy/byte_stream.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/deploy/package_constants.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/deploy/step_profile.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/overlap.h"

namespace tutti::deploy {
namespace {

constexpr size_t kMostReady = 64;  // plans that are kept
constexpr int kMostThreads = 1024;

// The levels in words, with what their code needs.
std::string describe(std::span<const codegen::CpuTarget> levels) {
  std::string text;
  for (const codegen::CpuTarget level : levels)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", name_of(level), features_of(level));
  return text;
}

// The elements of `t`, dense, at the start of a storage: `t` itself where it is that.
Tensor as_source(const Tensor& t) {
  before_host_read(t);
  if (t.is_contiguous() && t.offset() == 0) return t;
  const Tensor dense = to_contiguous(t);
  return Tensor::from_memory(dense.raw_data(), dense.extents(), dense.dtype(), [dense] {});
}

std::vector<Extents> extents_of(std::span<const Tensor> tensors) {
  std::vector<Extents> extents;
  for (const Tensor& t : tensors) extents.push_back(t.extents());
  return extents;
}

// Arguments that are written have memory of their own: the function was proved with such ones.
void refuse_overlaps(const Manifest& manifest, std::span<const Tensor> inputs, std::span<const Tensor> into) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!manifest.inputs[i].is_written) continue;
    TUTTI_CHECK(!inputs[i].storage()->is_read_only(), "{}: argument {} is written, and its memory is read-only",
                manifest.function, i);
    TUTTI_CHECK(!overlaps_itself(inputs[i].extents(), inputs[i].strides()),
                "{}: argument {} is written, and some of its elements are the same memory (strides {}); pass a copy",
                manifest.function, i, inputs[i].strides());
    const auto begin_of = [](const Tensor& t) { return static_cast<const char*>(t.storage()->data()); };
    const auto is_shared = [&](const Tensor& t) {
      return begin_of(t) < begin_of(inputs[i]) + inputs[i].storage()->nbytes() &&
             begin_of(inputs[i]) < begin_of(t) + t.storage()->nbytes();
    };
    for (size_t k = 0; k < inputs.size(); ++k)
      TUTTI_CHECK(k == i || !is_shared(inputs[k]),
                  "{}: argument {} is written, and argument {} is in the same memory; pass a copy of one of them",
                  manifest.function, i, k);
    for (size_t k = 0; k < into.size(); ++k)
      TUTTI_CHECK(!is_shared(into[k]), "{}: argument {} is written, and result {} is to be stored in its memory",
                  manifest.function, i, k);
  }
}

// Arguments that are written and are not dense: what the call did to their dense copies, also one that failed.
class WriteBack {
 public:
  WriteBack(const Manifest& manifest, std::span<const Tensor> inputs, std::span<const Tensor> dense)
      : manifest_(manifest), inputs_(inputs), dense_(dense) {}
  ~WriteBack() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!manifest_.inputs[i].is_written) continue;
      if (!dense_[i].is_same(inputs_[i])) copy_elements(inputs_[i], dense_[i]);
      inputs_[i].storage()->bump_version();
    }
  }
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

 private:
  const Manifest& manifest_;
  const std::span<const Tensor> inputs_, dense_;
};

}  // namespace

std::string PackagedPlans::to_bytes() const {
  ByteWriter out;
  for (const auto* list : {&texts, &kernel_keys}) {
    out.put(static_cast<uint64_t>(list->size()));
    for (const std::string& text : *list) out.put_text(text);
  }
  out.put_text(formulas);
  return out.take();
}

PackagedPlans PackagedPlans::of_bytes(std::string_view bytes) {
  ByteReader in(bytes, "plans");
  PackagedPlans plans;
  for (auto* list : {&plans.texts, &plans.kernel_keys}) {
    for (size_t count = in.get_count(8); count > 0; --count) list->emplace_back(in.get_text());
  }
  plans.formulas = in.get_text();
  in.at_end();
  return plans;
}

Package::Package() = default;
Package::~Package() = default;

std::shared_ptr<Package> Package::open(const std::string& path, Purpose purpose, int threads) {
  TUTTI_CHECK(threads >= 0 && threads <= kMostThreads, "a package is to use {} threads; it may be from 1 to {}, or 0",
              threads, kMostThreads);
  std::shared_ptr<Package> package(new Package);
  package->purpose_ = purpose;
  if (threads > 0) package->context_ = std::make_unique<RankContext>(RankContext::Options{.threads = threads});
  package->file_ = SectionFile::open(path);
  package->manifest_ = Manifest::of_bytes(package->file_->get(SectionKind::manifest).bytes);
  package->check_manifest(path);
  package->kernels_ = kernels_of(*package->file_);
  package->plans_ = PackagedPlans::of_bytes(package->file_->get(SectionKind::plans).bytes);
  const Manifest& manifest = package->manifest_;
  package->formulas_ = std::make_unique<const WordFormulas>(
      package->plans_.formulas, static_cast<size_t>(manifest.points()), manifest.sizes.size());
  package->bind_constants();
  for (const codegen::CpuTarget level : manifest.levels) package->check_complete(path, level);
  if (purpose == Purpose::look) return package;
  const codegen::CpuTarget level = codegen::cpu_target();
  if (std::find(manifest.levels.begin(), manifest.levels.end(), level) == manifest.levels.end()) {
    throw PackageError(
        PackageError::Kind::processor,
        fmt::format("the package {} has code for {}, and none for {}, which this processor and TUTTI_CPU give; package "
                    "the function for it, or set TUTTI_CPU to one of those",
                    path, describe(manifest.levels), name_of(level)));
  }
  package->code_ = map_kernels(*package->file_, package->kernels_, level);
  return package;
}

void Package::check_manifest(const std::string& path) const {
  const auto refuse = [&](const std::string& what) {
    throw PackageError(PackageError::Kind::version,
                       fmt::format("the package {} {}; package the function again with this Tutti", path, what));
  };
  if (manifest_.numerics_version != kNumericsVersion)
    refuse(fmt::format("has numerics.version {}, and this runtime {}", manifest_.numerics_version, kNumericsVersion));
  if (manifest_.generator != codegen::generator_sources())
    refuse(fmt::format("has code of the generator {:016x}, and this runtime knows {:016x}", manifest_.generator,
                       codegen::generator_sources()));
  std::string missing, others;
  for (const PackageOp& op : manifest_.ops) {
    const auto table = op_table();
    const auto it = std::find_if(table.begin(), table.end(), [&](const OpDef* o) { return o->name == op.name; });
    if (it == table.end()) missing += (missing.empty() ? "" : ", ") + op.name;
    else if (schema_of(**it, op.attrs.empty() ? nullptr : attrs_type_of(**it, op.attrs)) != op.schema)
      others += (others.empty() ? "" : ", ") + op.name;
  }
  if (!missing.empty()) refuse("calls ops that this runtime does not have: " + missing);
  if (!others.empty()) refuse("calls other versions of these ops than this runtime has: " + others);
}

// Whatever a call can ask for is there: the kernels of the plans, and those that library calls choose while they run.
void Package::check_complete(const std::string& path, codegen::CpuTarget level) const {
  std::vector<std::pair<std::string_view, codegen::CpuTarget>> have;
  for (const PackagedKernel& k : kernels_) have.emplace_back(k.key, k.target);
  std::sort(have.begin(), have.end());
  const auto want = [&](const std::string& key, codegen::CpuTarget target, const std::string& name) {
    const std::pair<std::string_view, codegen::CpuTarget> wanted(key, target);
    TUTTI_CHECK_PACKAGE(std::binary_search(have.begin(), have.end(), wanted),
                        "the package {} lacks the kernel {} for {}; package the function again", path, name,
                        codegen::name_of(level));
  };
  for (const std::string& key : plans_.kernel_keys) want(key, without_dots(level), "of a plan");
  for (const codegen::LibraryKernelSpec& k : codegen::library_kernels(manifest_.library_dtypes, level))
    want(k.key(), k.target, k.name());
}

void Package::bind_constants() {
  const Section* section = file_->find(SectionKind::constants);
  const std::string_view bytes = section ? section->bytes : std::string_view();
  PackageConstants::Set constants;
  for (const PackageConstant& c : manifest_.constants) {
    TUTTI_CHECK_PACKAGE(c.first <= bytes.size() && c.nbytes <= bytes.size() - c.first && c.first % 64 == 0,
                        "a constant of the package is {} bytes at {} of {}", c.nbytes, c.first, bytes.size());
    char* data = const_cast<char*>(bytes.data() + c.first);  // mapped read-only, and no plan writes it
    constants.push_back(Tensor::from_memory(data, {static_cast<int64_t>(c.nbytes)}, DType::u8, [file = file_] {}));
    constants.back().storage()->set_read_only();
  }
  for (const PackageConstant& c : manifest_.state_memory)
    TUTTI_CHECK_PACKAGE(c.first <= bytes.size() && c.nbytes <= bytes.size() - c.first,
                        "state of the package is {} bytes at {} of {}", c.nbytes, c.first, bytes.size());
  constants_ = std::make_unique<PackageConstants>(manifest_, std::move(constants));
}

std::string_view Package::provenance() const {
  const Section* section = file_->find(SectionKind::provenance);
  return section ? section->bytes : std::string_view();
}

// Each op that is called is one of the manifest's, whose schemas are those of this runtime, with options of its type.
void Package::check_ops(const Plan& plan) const {
  for (const graph::Step& step : plan.steps) {
    const auto* call = std::get_if<graph::CallStep>(&step);
    if (call == nullptr || call->node >= 0) continue;  // the latter: control flow, whose parts follow
    const auto it = std::find_if(manifest_.ops.begin(), manifest_.ops.end(),
                                 [&](const PackageOp& op) { return op.name == call->op->name; });
    TUTTI_CHECK_PACKAGE(it != manifest_.ops.end(), "a plan of the package calls {}, which its manifest does not list",
                        call->op->name);
    TUTTI_CHECK_PACKAGE(call->attrs.empty() || call->attrs.type_name() == it->attrs,
                        "a plan of the package calls {} with options of the type {}, which are of {}", call->op->name,
                        call->attrs.type_name(), it->attrs.empty() ? "none" : it->attrs);
    if (call->op->ordered) check_group(*call);
  }
  for (const PlanControl& control : plan.controls) {
    for (const Plan& part : control.plans) check_ops(part);
  }
}

void Package::check_group(const graph::CallStep& call) const {
  const CallAttrs* attrs = collective_attrs(*call.op, call.attrs);
  TUTTI_CHECK_PACKAGE(attrs != nullptr, "a plan of the package calls {} in no group", call.op->name);
  const auto is_its = [&](const PackageGroup& g) {
    return g.name == *attrs->group.name && g.ranks == attrs->group.ranks;
  };
  TUTTI_CHECK_PACKAGE(std::any_of(manifest_.groups.begin(), manifest_.groups.end(), is_its),
                      "a plan of the package calls {} in a group '{}' of {} ranks, which its manifest does not list",
                      call.op->name, *attrs->group.name, attrs->group.ranks);
}

Plan Package::plan_at(int64_t point) const {
  const std::vector<int64_t> sizes = manifest_.sizes_of(point);
  Plan plan = plan_of_words(formulas_->at(static_cast<size_t>(point), sizes), plans_.texts);
  PlanMemory memory;
  for (const PackageConstant& c : manifest_.constants) memory.constants.push_back(static_cast<int64_t>(c.nbytes));
  for (const PackageConstant& c : manifest_.state_memory) memory.state.push_back(static_cast<int64_t>(c.nbytes));
  for (const PackageArgument& input : manifest_.inputs) {
    memory.arguments.push_back(numel_of(manifest_.extents_of(input, sizes)) * itemsize(input.dtype));
    memory.written.push_back(input.is_written);
  }
  check_ops(plan);
  check_plan(plan, memory);
  bool fits = plan.results.size() == manifest_.outputs.size();
  for (size_t k = 0; fits && k < plan.results.size(); ++k) fits = plan.results[k].dtype == manifest_.outputs[k];
  TUTTI_CHECK_PACKAGE(fits, "a plan of the package has other results than its manifest says");
  return plan;
}

void Package::check_all_plans() const {
  for (int64_t point = 0; point < manifest_.points(); ++point) {
    Plan plan = plan_at(point);
    for_each_kernel(plan, [&](const graph::KernelStep& kernel) {
      const std::string key = kernel.spec.key();
      TUTTI_CHECK_PACKAGE(
          std::find(plans_.kernel_keys.begin(), plans_.kernel_keys.end(), key) != plans_.kernel_keys.end(),
          "a plan of the package has a kernel {} that it does not list", kernel.ops);
    });
  }
}

std::shared_ptr<const PlanRunner> Package::runner_at(int64_t point) const {
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(ready_.begin(), ready_.end(), [&](const Ready& r) { return r.point == point; });
    if (it != ready_.end()) {
      ready_.splice(ready_.begin(), ready_, it);
      return ready_.front().runner;
    }
  }
  Plan plan = plan_at(point);
  for_each_kernel(plan, [&](graph::KernelStep& step) {
    const auto it = code_.find(step.spec.key());
    TUTTI_CHECK_PACKAGE(it != code_.end(), "a plan of the package has a kernel {} without code", step.ops);
    step.kernel = &it->second;
  });
  auto runner = std::make_shared<const PlanRunner>(std::move(plan));
  const std::lock_guard lock(mutex_);
  ready_.push_front({point, runner});
  if (ready_.size() > kMostReady) ready_.pop_back();
  return runner;
}

std::vector<Extents> Package::output_extents(std::span<const Extents> inputs) const {
  std::vector<DType> dtypes;
  for (const PackageArgument& input : manifest_.inputs) dtypes.push_back(input.dtype);
  const int64_t point = manifest_.point_of(inputs, dtypes);
  std::vector<Extents> extents;
  const auto add = [&](const Plan& plan) {
    for (const graph::Value& v : plan.results) extents.push_back(v.sizes);
  };
  if (purpose_ == Purpose::look) add(plan_at(point));
  else add(runner_at(point)->plan());
  return extents;
}

std::shared_ptr<const StepObserver> Package::observer() const {
  const std::lock_guard lock(mutex_);
  return observer_;
}

std::shared_ptr<const BoundGroups> Package::groups() const {
  if (manifest_.groups.empty()) return nullptr;
  std::shared_ptr<const BoundGroups> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
  }
  std::string names;
  for (const PackageGroup& g : manifest_.groups)
    names += fmt::format("{}'{}' of {} ranks", names.empty() ? "" : ", ", g.name, g.ranks);
  TUTTI_CHECK(groups != nullptr,
              "{}: the function communicates in {}, and has no such group; give it live ones with set_groups() (in C: "
              "tutti_package_set_groups)",
              manifest_.function, names);
  return groups;
}

void Package::set_groups(std::span<const std::shared_ptr<RankGroup>> groups) {
  auto made = std::make_shared<const BoundGroups>(bind_groups(manifest_.function, manifest_.groups, groups));
  const std::lock_guard lock(mutex_);
  groups_ = std::move(made);
}

void Package::set_constants(std::span<const NewConstant> values) { constants_->set(values); }

void Package::set_observer(std::shared_ptr<const StepObserver> observer) {
  std::unique_lock lock(mutex_);
  std::swap(observer_, observer);
  lock.unlock();
  // A call that has begun still passes its steps to the one before, which may end when this returns.
  while (observer != nullptr && observer.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

std::shared_ptr<PackageState> Package::new_state() const {
  return std::shared_ptr<PackageState>(new PackageState(manifest_.function, file_, manifest_));
}

std::vector<Tensor> Package::run(std::span<const Tensor> inputs, std::span<const Tensor> into) const {
  TUTTI_CHECK(manifest_.state_memory.empty(),
              "{}: the function changes state, such as '{}'; make one with new_state() and pass it to run()",
              manifest_.function, manifest_.state.empty() ? "" : manifest_.state[0].name);
  StepProfile profile(observer());
  std::vector<Tensor> results = run_on({}, inputs, into);
  profile.report();
  return results;
}

std::vector<Tensor> Package::run(PackageState& state, std::span<const Tensor> inputs,
                                 std::span<const Tensor> into) const {
  TUTTI_CHECK(state.file_ == file_,
              "{}: the state is of another package, of '{}'; states belong to the package that "
              "made them",
              manifest_.function, state.function_);
  StepProfile profile(observer());
  std::vector<Tensor> results;
  {
    const std::unique_lock lock = state.claim();
    results = run_on(state.memory_, inputs, into);
  }
  profile.report();
  return results;
}

std::vector<Tensor> Package::run_on(std::span<const Tensor> state, std::span<const Tensor> inputs,
                                    std::span<const Tensor> into) const {
  TUTTI_CHECK(purpose_ == Purpose::run, "{}: the package was opened to be looked at, not to be run",
              manifest_.function);
  std::vector<DType> dtypes;
  for (const Tensor& t : inputs) dtypes.push_back(t.dtype());
  const std::shared_ptr<const BoundGroups> groups = this->groups();
  const auto runner = runner_at(manifest_.point_of(extents_of(inputs), dtypes));
  const Plan& plan = runner->plan();
  TUTTI_CHECK(into.empty() || into.size() == plan.results.size(), "{}: memory for {} results is given, there are {}",
              manifest_.function, into.size(), plan.results.size());
  for (size_t k = 0; k < into.size(); ++k) {
    const graph::Value& v = plan.results[k];
    TUTTI_CHECK(
        into[k].dtype() == v.dtype && into[k].extents() == v.sizes && into[k].is_contiguous() && into[k].offset() == 0,
        "{}: the memory for result {} is {} {}, the result is {} {}", manifest_.function, k, name_of(into[k].dtype()),
        into[k].extents(), name_of(v.dtype), v.sizes);
  }
  refuse_overlaps(manifest_, inputs, into);
  std::vector<Tensor> dense;  // arguments
  for (const Tensor& t : inputs) dense.push_back(as_source(t));
  const auto constants = constants_->current();
  std::vector<Tensor> sources;
  for (const PlanSource& s : plan.sources) {
    const auto i = static_cast<size_t>(s.index);
    using Kind = PlanSource::Kind;
    sources.push_back(s.kind == Kind::constant ? (*constants)[i] : s.kind == Kind::state ? state[i] : dense[i]);
  }
  const WriteBack written(manifest_, inputs, dense);
  std::optional<RankContext::Scope> own_threads;
  if (context_ != nullptr) own_threads.emplace(*context_);
  std::optional<BoundGroupsScope> ranks;
  if (groups != nullptr) ranks.emplace(*groups);
  const StrictScope strict;
  const codegen::NoNewKernels packaged;
  return runner->run(sources, into);
}

}  // namespace tutti::deploy
