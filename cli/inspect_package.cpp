#include "cli/inspect_package.h"

#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/package.h"

namespace tutti::cli {

std::string text_of(const deploy::Manifest& manifest, const deploy::PackageArgument& input) {
  std::string dims;
  for (const deploy::PackageDim& d : input.dims) {
    dims += dims.empty() ? "" : ", ";
    dims += d.symbol < 0 ? std::to_string(d.size) : manifest.sizes[static_cast<size_t>(d.symbol)].name;
  }
  return fmt::format("{} [{}]{}", name_of(input.dtype), dims, input.is_written ? ", written" : "");
}

std::string collectives_of(const deploy::Manifest& manifest) {
  std::string names;
  for (const deploy::PackageOp& op : manifest.ops) {
    if (deploy::is_collective(find_op(op.name))) names += (names.empty() ? "" : ", ") + op.name;
  }
  return names;
}

namespace {

std::string text_of_group(const deploy::PackageGroup& group) {
  return fmt::format("'{}' of {} ranks, {}", group.name, group.ranks,
                     group.rank < 0 ? "the same file for all of them" : fmt::format("the file of rank {}", group.rank));
}

}  // namespace

std::string text_of_package(const deploy::Package& package, bool plans) {
  const deploy::Manifest& m = package.manifest();
  std::string text;
  const auto add = [&]<class... Args>(fmt::format_string<Args...> line, Args&&... args) {
    text += fmt::format(line, std::forward<Args>(args)...);
  };
  add("{}: made by Tutti {}, numerics.version {}\n", m.function, m.made_by, m.numerics_version);
  for (size_t i = 0; i < m.inputs.size(); ++i) add("  argument {}: {}\n", i, text_of(m, m.inputs[i]));
  for (const deploy::PackageSize& s : m.sizes) {
    const deploy::PackageSize* other = s.apart_from < 0 ? nullptr : &m.sizes[static_cast<size_t>(s.apart_from)];
    add("  {}: {} to {} in steps of {}{}\n", s.name, s.least, s.most, s.step,
        other == nullptr ? "" : fmt::format(", above {} only where {} is {}", s.least, other->name, other->least));
  }
  for (size_t k = 0; k < m.outputs.size(); ++k) add("  result {}: {}\n", k, name_of(m.outputs[k]));
  for (const deploy::PackageStateTensor& t : m.state)
    add("  state {}: {} {}\n", t.name, name_of(t.dtype), to_string(t.sizes));
  for (const deploy::PackageGroup& g : m.groups) add("  group {}\n", text_of_group(g));
  if (const std::string names = collectives_of(m); !names.empty()) add("  communicates by {}\n", names);
  for (const deploy::PackageOp& op : m.ops) add("  calls {}, schema {:016x}\n", op.name, op.schema);
  for (const codegen::CpuTarget level : m.levels) add("  for {}: {}\n", name_of(level), deploy::features_of(level));
  const auto counts = package.formula_counts();
  add("  plans of {} combinations of sizes: {} numbers constant, {} polynomial, {} in tables\n", m.points(),
      counts.constant, counts.polynomial, counts.table);
  add("  {} kernels; {} constants, {} bytes before equal ones were put together\n", package.kernels().size(),
      m.constants.size(), m.constant_nbytes);
  for (const deploy::PackageNamedConstant& c : m.named_constants)
    add("  constant {}: {} {}\n", c.name, name_of(c.dtype), c.sizes);
  for (const deploy::Section& s : package.file().sections()) {
    const bool is_code = s.kind == deploy::SectionKind::code;
    add("  section {}{}{}: {} bytes\n", name_of(s.kind), is_code ? " " : "", is_code ? name_of(s.level) : "",
        s.bytes.size());
  }
  if (plans) text += package.provenance();
  return text;
}

}  // namespace tutti::cli
