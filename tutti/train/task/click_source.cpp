#include "tutti/train/task/click_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/io/click_reader.h"
#include "tutti/io/generated_clicks.h"

namespace tutti::train {
namespace {

// The number of the first generated row that is held out; no run trains on so many.
constexpr int64_t kFirstHeldOut = int64_t{1} << 60;

class ClicksOfFiles final : public ClickSource {
 public:
  ClicksOfFiles(const std::vector<std::string>& paths, const Config& config, bool repeats)
      : reader_(paths, click_columns(config), {.repeats = repeats, .delimiter = config.clicks.delimiter[0]}) {}

  ClickRows read(int64_t count) override { return reader_.read(count); }
  int64_t skip(int64_t count) override { return reader_.skip(count); }
  std::vector<int64_t> position() const override { return reader_.position().numbers(); }
  void seek(int64_t, const std::vector<int64_t>& position) override { reader_.seek(ClickPosition::of(position)); }

 private:
  ClickReader reader_;
};

class ClicksThatAreMade final : public ClickSource {
 public:
  ClicksThatAreMade(const Config& config, int64_t first, int64_t end)
      : clicks_(click_columns(config), {.seed = static_cast<uint64_t>(config.clicks.generated_seed)}),
        next_(first),
        end_(end) {}

  ClickRows read(int64_t count) override {
    count = std::min(count, end_ - next_);
    return clicks_.rows(std::exchange(next_, next_ + count), count);
  }
  int64_t skip(int64_t count) override {
    count = std::min(count, end_ - next_);
    next_ += count;
    return count;
  }
  Tensor true_logits(int64_t count) const override { return clicks_.logits(next_, std::min(count, end_ - next_)); }
  void seek(int64_t row, const std::vector<int64_t>&) override { next_ = row; }

 private:
  const GeneratedClicks clicks_;
  int64_t next_;
  const int64_t end_;
};

}  // namespace

ClickColumns click_columns(const Config& config) {
  const ClicksConfig& c = config.clicks;
  ClickColumns columns = criteo_columns(c.table_rows);
  columns.label = c.label_column;
  if (!c.dense_columns.empty()) columns.dense = c.dense_columns;
  for (size_t i = 0; i < c.category_columns.size(); ++i) columns.categories[i].name = c.category_columns[i];
  return columns;
}

std::unique_ptr<ClickSource> open_training_clicks(const Config& config) {
  if (config.clicks.source == "generated") return std::make_unique<ClicksThatAreMade>(config, 0, kFirstHeldOut);
  return std::make_unique<ClicksOfFiles>(config.data.paths, config, true);
}

std::unique_ptr<ClickSource> open_held_out_clicks(const Config& config) {
  const ClicksConfig& c = config.clicks;
  if (c.source == "generated")
    return std::make_unique<ClicksThatAreMade>(config, kFirstHeldOut, kFirstHeldOut + c.validation_rows);
  return std::make_unique<ClicksOfFiles>(c.validation_paths, config, false);
}

}  // namespace tutti::train
