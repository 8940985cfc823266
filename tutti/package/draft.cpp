#include "tutti/package/draft.h"

#include <algorithm>

#include "tutti/codegen/generator_sources.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/codegen/library_kernels.h"
#include "tutti/core/blake2b.h"
#include "tutti/core/error.h"
#include "tutti/core/numerics_version.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/deploy/package.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {

deploy::Plan Draft::add(TracedPlan traced, std::vector<Tensor>& constants) {
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

void Draft::note_written(const deploy::Plan& plan) {
  for_each_written_source(plan, [&](const deploy::PlanSource& source) {
    if (source.kind == deploy::PlanSource::Kind::argument)
      manifest.inputs[static_cast<size_t>(source.index)].is_written = true;
  });
}

// Which kernels calls choose while they run depends on the dtypes of their operands.
void Draft::note_dtypes(const deploy::Plan& plan) {
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

void Draft::note_groups(const deploy::Plan& plan) {
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
void Draft::join_groups(std::span<const deploy::Section> sections) {
  if (manifest.groups.empty()) return;
  Blake2b own(deploy::kTogetherBytes);
  for (const deploy::Section& s : sections)
    own.add(fmt::format("{} {} ", name_of(s.kind), s.bytes.size())), own.add(s.bytes);
  const std::string digest = own.finish();
  for (deploy::PackageGroup& g : manifest.groups) {
    deploy::RankGroup& ranks = *group_named(g.name);
    const std::vector<std::string> all = ranks.all_gather(digest);
    Blake2b together(deploy::kTogetherBytes);
    for (const std::string& each : all) together.add(each);
    g.together = together.finish();
    const bool is_equal = std::all_of(all.begin(), all.end(), [&](const std::string& d) { return d == digest; });
    g.rank = is_equal ? -1 : ranks.rank();
  }
}

Draft::Contents Draft::contents() {
  manifest.made_by = TUTTI_VERSION;
  manifest.numerics_version = kNumericsVersion;
  manifest.generator = codegen::generator_sources();
  for (const OpDef* op : ops_) {
    const AttrsType* attrs = deploy::attrs_type_of(*op);
    manifest.ops.push_back(
        {op->name, std::string(attrs == nullptr ? "" : attrs->name()), deploy::schema_of(*op, attrs)});
  }
  std::sort(manifest.ops.begin(), manifest.ops.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  manifest.library_dtypes.assign(library_dtypes_.begin(), library_dtypes_.end());
  state_.declare(manifest, constants_);
  for (const deploy::BoundGroup& g : groups_) {
    if (used_groups_.contains(g.name)) manifest.groups.push_back({.name = g.name, .ranks = g.ranks->size()});
  }
  manifest.constants = constants_.constants();
  name_constants();
  manifest.constant_nbytes = static_cast<uint64_t>(constants_.nbytes_before());
  Contents made{.code = compile(), .plans = {}, .kernels = {}};
  deploy::PackagedPlans plans{.texts = texts_.texts(), .kernel_keys = {}, .formulas = {}};
  for (const auto& [key, spec] : specs_) plans.kernel_keys.push_back(key);
  for (const auto& [key, spec] : requested) plans.kernel_keys.push_back(key);
  std::vector<deploy::Words> sizes;
  for (int64_t point = 0; point < manifest.points(); ++point) sizes.push_back(manifest.sizes_of(point));
  plans.formulas = deploy::encode_formulas(sizes, words_);
  made.plans = plans.to_bytes();
  made.kernels = made.code.table();
  return made;
}

void Draft::write(const std::string& path, PackageReport& report) {
  Contents made;
  ranks_.part("its contents", [&] { made = contents(); });
  const std::string without_ranks = manifest.to_bytes();
  using Kind = deploy::SectionKind;
  std::vector<deploy::Section> sections = {
      {.kind = Kind::manifest, .bytes = without_ranks},
      {.kind = Kind::plans, .bytes = made.plans},
      {.kind = Kind::kernels, .bytes = made.kernels},
  };
  for (const auto& [level, bytes] : made.code.code()) {
    sections.push_back({.kind = Kind::code, .level = level, .bytes = bytes});
    report.code_nbytes += static_cast<int64_t>(bytes.size());
  }
  sections.push_back({.kind = Kind::constants, .bytes = constants_.bytes()});
  sections.push_back({.kind = Kind::provenance, .bytes = steps_});
  join_groups(sections);
  const std::string with_ranks = manifest.to_bytes();
  sections[0].bytes = with_ranks;
  ranks_.part("its file", [&] { write_sections(path, sections); });
  report.kernels = static_cast<int64_t>(made.code.num_kernels());
  report.combinations = manifest.points();
  report.constant_nbytes_before = constants_.nbytes_before();
  report.constant_nbytes = static_cast<int64_t>(constants_.bytes().size());
}

void Draft::name_constants() {
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
    TUTTI_CHECK(std::none_of(manifest.named_constants.begin(), manifest.named_constants.end(), is_same),
                "package: '{}': two constants are named '{}'", options_.name, c.name);
    manifest.named_constants.push_back({c.name, held.dtype(), held.extents(), constant,
                                        static_cast<uint64_t>(held.offset() * itemsize(held.dtype()))});
  }
}

deploy::CodeWriter Draft::compile() const {
  deploy::CodeWriter code;
  for (const codegen::CpuTarget level : manifest.levels) {
    const codegen::CpuTarget target = without_dots(level);
    for (const auto* specs : {&specs_, &requested}) {
      for (const auto& [key, spec] : *specs)
        code.add(key, spec.name, target, codegen::process_kernel_cache().code(spec, target));
    }
    for (const codegen::LibraryKernelSpec& k : codegen::library_kernels(manifest.library_dtypes, level))
      code.add(k.key(), k.name(), k.target, codegen::library_code(k));
  }
  return code;
}

const std::shared_ptr<deploy::RankGroup>& Draft::group_named(const std::string& name) const {
  const auto is_it = [&](const deploy::BoundGroup& g) { return g.name == name; };
  return std::find_if(groups_.begin(), groups_.end(), is_it)->ranks;
}

}  // namespace tutti::package_detail
