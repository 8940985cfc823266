// The flags of commands that can quantize the weights of a model.
#pragma once

#include "tutti/train/quantize_settings.h"

namespace CLI {
class App;
}

namespace tutti::cli {

// --quantize, --quantize-group, --calibration and --quantize-report. `settings` must live as long as `verb`.
void add_quantize_flags(CLI::App& verb, train::QuantizeSettings& settings);

}  // namespace tutti::cli
