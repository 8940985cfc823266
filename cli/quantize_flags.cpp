#include "cli/quantize_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace tutti::cli {

void add_quantize_flags(CLI::App& verb, train::QuantizeSettings& s) {
  auto* kind =
      verb.add_option("--quantize", s.kind,
                      "Quantize the linear layers of the loaded model; the static kinds need --calibration")
          ->check(CLI::IsMember({"int8", "fp8", "int8_static", "fp8_static", "int8_weight_only", "int4_weight_only"}));
  verb.add_option("--quantize-group", s.group, "Elements that share a scale with int4_weight_only")
      ->check(CLI::Range(int64_t{8}, int64_t{1} << 20))
      ->needs(kind)
      ->capture_default_str();
  verb.add_option("--calibration", s.calibration,
                  "Text that the model reads before it is quantized, as --data of eval; the errors of layers are then "
                  "those of their results")
      ->needs(kind);
  s.report = [](const std::string& text) { std::fputs(text.c_str(), stderr); };
  verb.add_flag("--quantize-report", s.reports_layers, "Tell the error of each layer")->needs(kind);
}

}  // namespace tutti::cli
