// What a package will hold: it grows as combinations of sizes are traced one after another, and becomes a file.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tutti/deploy/packaged_code.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/package/constant_pool.h"
#include "tutti/package/held_state.h"
#include "tutti/package/package.h"
#include "tutti/package/rank_agreement.h"
#include "tutti/package/traced_plan.h"

namespace tutti::package_detail {

class Draft {
 public:
  // All must outlive it.
  Draft(const PackageOptions& options, const HeldState& state, const deploy::BoundGroups& groups,
        const RankAgreement& ranks)
      : options_(options), state_(state), groups_(groups), ranks_(ranks) {}

  deploy::Manifest manifest;      // whoever makes the package declares inputs, sizes, levels and outputs
  deploy::KernelSpecs requested;  // what steps choose while they run

  // Adds what was traced for the next combination. Returns its plan, whose constants are those of `constants`.
  deploy::Plan add(TracedPlan traced, std::vector<Tensor>& constants);
  // Writes the file, on all ranks of the groups.
  void write(const std::string& path, PackageReport& report);
  const std::shared_ptr<deploy::RankGroup>& group_named(const std::string& name) const;

 private:
  // The sections of the file but for the manifest, which says whose file it is when the ranks have compared theirs.
  struct Contents {
    deploy::CodeWriter code;
    std::string plans, kernels;
  };

  void note_written(const deploy::Plan& plan);
  void note_dtypes(const deploy::Plan& plan);
  void note_groups(const deploy::Plan& plan);
  Contents contents();
  void name_constants();
  deploy::CodeWriter compile() const;
  void join_groups(std::span<const deploy::Section> sections);

  const PackageOptions& options_;
  const HeldState& state_;
  const deploy::BoundGroups& groups_;
  const RankAgreement& ranks_;
  ConstantPool constants_;
  deploy::TextTable texts_;
  deploy::KernelSpecs specs_;
  std::vector<deploy::Words> words_;  // per combination
  std::set<const OpDef*> ops_;
  std::set<DType> library_dtypes_;
  std::set<std::string> used_groups_;
  std::string steps_;  // of the first combination
};

}  // namespace tutti::package_detail
