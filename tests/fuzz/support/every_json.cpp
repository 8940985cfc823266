#include "tests/fuzz/support/every_json.h"

#include <poll.h>

#include "tutti/core/error.h"
#include "tutti/diagnose/flight_dump.h"
#include "tutti/diagnose/flight_recorder.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/safetensors.h"
#include "tutti/io/text_source.h"
#include "tutti/job/launch/node_meeting.h"
#include "tutti/job/launch/node_news.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/runtime/trace/trace_merge.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/report/report_facts.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;

const std::string& tokenizer_json() {
  static const std::vector<std::string> documents = {"the lark sings the song of the lark"};
  static const std::string json = BpeTokenizer(train_bpe(documents, {.vocab_size = 262})).to_json();
  return json;
}

std::string with_length(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(4, '\0');
}

void read_checkpoint(const TemporaryFolder& folder) { train::verify_checkpoint(folder / "step-1"); }
void write_tensors_of_checkpoint(const TemporaryFolder& folder) {
  for (const char* name : {"step-1/model.safetensors", "step-1/optimizer.safetensors"})
    folder.write(name, std::string(8, '\0').replace(0, 1, "\2") + "{}");
}

std::string flight_dump() {
  comm::FlightRecorder recorder({.entries = 8, .rank = 1, .world_size = 3});
  comm::FlightGroup& group = recorder.add_group("dp", "data", {0, 1, 2});
  comm::CallRecord record{.kind = comm::CollectiveKind::all_reduce, .sequence = 1};
  record.describe_tensor(DType::f32, {4, 5});
  recorder.ended(recorder.begin(group, record, 80, 80), comm::FlightState::completed);
  record.sequence = 2;
  recorder.begin(group, record, 80, 80);
  return to_json(recorder.snapshot("test"));
}

constexpr const char* kTrace =
    R"({"baseTimeNanoseconds": 5, "tutti": {"monotonicNanoseconds": 7, "clock": "boot", "droppedEvents": 0}, "distributedInfo": {"rank": 0},)"
    R"( "traceEvents": [{"ph": "X", "pid": 0, "tid": 1, "ts": 1.5, "dur": 2.5, "cat": "collective_comm", "id": 3, "args": {"Seq": 1, "Process Group Name": "dp",)"
    R"( "Process Group Ranks": [0, 1], "Collective name": "all_reduce", "more": {"a": [1, "b", null, true]}}}]})";
constexpr const char* kMetrics =
    R"({"step":2,"loss":2.625,"loss_hex":"0x1.5p+1","grad_norm":0.2,"grad_norm_hex":"0x1.9p-3","lr":0.0003,"tokens_seen":16384,"tokens_per_s":12345.5,)"
    R"("tflops":0.25,"mfu":null,"step_ms":650,"data_ms":1.5,"comm_ms":20,"memory_peak_bytes":123456789,"product_flops":25000000000,"sent_bytes":4096,"val_bits_per_byte":2.5})";
constexpr const char* kNode =
    R"({"host": "b", "join-ms": 300000, "local": 1, "max-restarts": 0, "nnodes": "2", "node": 1, "pid": 12, "run-id": ""})";
constexpr const char* kPlan =
    R"({"nodes": [{"host": "b", "join-ms": 300000, "local": 1, "max-restarts": 0, "nnodes": "2", "node": 1, "pid": 12, "run-id": ""}], "master-port": 1235, "port": 1234, "run-id": "none"})";
constexpr const char* kNews =
    R"({"cause": 1, "interrupted": false, "kind": 0, "lines": ["last", "words"], "node": 0, "number": 0, "status": 139, "text": "it died"})";

comm::LaunchOptions launcher(int node, int port) {
  return {.nodes = {.min_nodes = 2, .max_nodes = 2, .node_rank = node, .host = "127.0.0.1", .port = port}};
}

// Node 0 finds `text` where node 1 leaves its record.
void read_node(const TemporaryFolder&, const std::string& text) {
  const comm::LaunchOptions options = launcher(0, 0);
  comm::NodeMeeting meeting(options);
  int calls = 0;
  comm::NodeMeeting::Plan plan;
  // Asked once before there is a store.
  meeting.meet(
      0, 2,
      [&] {
        if (++calls == 2) meeting.connect()->set("0/node/000001", text);
        return calls < 1000;
      },
      plan);
}

// Node 1 finds `text` where node 0 leaves the plan.
void read_plan(const TemporaryFolder&, const std::string& text) {
  comm::TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  comm::TcpStore({.port = server.port(), .job_key = ""}).set("0/plan", text);
  const comm::LaunchOptions options = launcher(1, server.port());
  comm::NodeMeeting meeting(options);
  comm::NodeMeeting::Plan plan;
  meeting.meet(0, 2, [] { return true; }, plan);
}

// A launcher reads `text` as the first news of the job. It tells what was wrong as news of its own.
void read_news(const TemporaryFolder&, const std::string& text) {
  comm::TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  comm::TcpStore store({.port = server.port(), .job_key = ""});
  store.set("0/plan", kPlan);
  store.set("0/news/1", text);
  const comm::LaunchOptions options = launcher(1, server.port());
  comm::NodeMeeting meeting(options);
  comm::NodeMeeting::Plan plan;
  meeting.meet(0, 2, [] { return true; }, plan);
  comm::NodeNews news(meeting.connect(), plan, options.nodes);
  pollfd there{.fd = news.fd(), .events = POLLIN, .revents = 0};
  TUTTI_CHECK_ENV(poll(&there, 1, 60'000) == 1, "no news within a minute");
  for (const comm::NewsItem& item : news.take()) {
    if (item.failure.text.find("no longer answers") != std::string::npos) throw UsageError(item.failure.text);
  }
}

JsonReader of_file(
    std::string name, std::string file, std::string good, std::function<void(const TemporaryFolder&)> read,
    std::function<std::string(const std::string&)> bytes_of = [](const std::string& text) { return text; }) {
  return {.name = std::move(name),
          .file = file,
          .good = std::move(good),
          .read =
              [=](const TemporaryFolder& folder, const std::string& text) {
                folder.write(file, bytes_of(text));
                read(folder);
              },
          .read_file = read};
}

std::string as_line(const std::string& text) { return text + "\n"; }

}  // namespace

const std::vector<JsonReader>& every_json_reader() {
  static const std::vector<JsonReader> all = {
      of_file("Tokenizer", "tokenizer.json", tokenizer_json(),
              [](const TemporaryFolder& f) { BpeTokenizer::load(f / "tokenizer.json"); }),
      of_file("TokenizerConfig", "tokenizer_config.json",
              R"({"bos_token": null, "eos_token": {"content": "<|endoftext|>"}})",
              [](const TemporaryFolder& f) {
                f.write("tokenizer.json", tokenizer_json());
                BpeTokenizer::load(f / "tokenizer.json");
              }),
      of_file(
          "Documents", "data.jsonl", R"({"text": "a lark", "more": [1, {"a": null}]})",
          [](const TemporaryFolder& f) { read_documents(std::vector<std::string>{f / "data.jsonl"}); }, as_line),
      of_file(
          "Safetensors", "model.safetensors",
          R"({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
          [](const TemporaryFolder& f) { SafetensorsFile(f / "model.safetensors"); }, with_length),
      of_file("Checkpoint", "step-1/state.json",
              train::state_json_of(
                  {.train = {.step = 1, .items_seen = 2, .next_row = 3, .optimizer_steps = 1, .seed = 42}}),
              [](const TemporaryFolder& f) {
                write_tensors_of_checkpoint(f);
                read_checkpoint(f);
              }),
      of_file("CheckpointOfClicks", "step-1/state.json",
              train::state_json_of({.train = {.step = 1,
                                              .items_seen = 2,
                                              .next_row = 3,
                                              .position = {0, 1, 2, 3, 4, 5},
                                              .inputs = {.clicks = train::ClickInput{.files = {{"a.csv", 7}}}}}}),
              [](const TemporaryFolder& f) {
                write_tensors_of_checkpoint(f);
                read_checkpoint(f);
              }),
      of_file(
          "Metrics", "metrics.jsonl", kMetrics,
          [](const TemporaryFolder& f) { train::read_metrics(f / "metrics.jsonl"); }, as_line),
      of_file("ReportFacts", "report.json",
              train::to_json(
                  {.memory = {{"peak", "1 MiB"}},
                   .ranks = {{}},
                   .timeline =
                       train::StepTimeline{
                           .step = 2, .ranks = 1, .spans = {{0, train::StepSpanKind::wait, 0.5, 1}}, .dropped = 0},
                   .samples = {{2, "a lark"}}}),
              [](const TemporaryFolder& f) { train::read_report_facts(f / "report.json"); }),
      of_file("Trace", "rank-0.json", kTrace,
              [](const TemporaryFolder& f) {
                const std::string file = f / "rank-0.json";
                merge_traces(f / "merged.json", {&file, 1});
              }),
      of_file("FlightDump", "flight_1", flight_dump(),
              [](const TemporaryFolder& f) { comm::read_flight_dump_file(f / "flight_1"); }),
      {.name = "Node", .file = "store key '0/node/000001'", .good = kNode, .read = read_node, .subject = "node "},
      {.name = "Plan", .file = "store key '0/plan'", .good = kPlan, .read = read_plan, .subject = "node "},
      {.name = "News", .file = "store key '0/news/1'", .good = kNews, .read = read_news}};
  return all;
}

}  // namespace tutti::testing
