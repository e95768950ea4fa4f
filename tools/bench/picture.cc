#include "tools/bench/picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace kvforge::bench {
namespace {

// Pixels.
constexpr double kPanelWidth = 520;
constexpr double kPanelHeight = 420;
constexpr double kLeft = 70;  // of each panel's frame, for the labels
constexpr double kTop = 50;
constexpr double kBottom = 60;
constexpr double kGap = 40;
constexpr double kLegend = 30;

constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#2e8b57",
                                    "#e08e0b", "#6a4c93", "#5c5c5c"};

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// One axis: values from low to high over so many pixels from `start` on.
struct Axis {
  double low = 1;
  double high = 10;
  bool logarithmic = true;
  double start = 0;
  double length = 0;  // negative: upwards

  double At(double value) const {
    const double part = logarithmic
                            ? std::log(value / low) / std::log(high / low)
                            : (value - low) / (high - low);
    return start + std::clamp(part, 0.0, 1.0) * length;
  }
};

// The decades that hold all of `values`, at least one.
Axis Decades(const std::vector<double>& values, double start, double length) {
  double low = 1e300;
  double high = 0;
  for (const double value : values) {
    if (value <= 0) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (high <= 0) low = high = 1;
  Axis axis = {std::pow(10, std::floor(std::log10(low))),
               std::pow(10, std::ceil(std::log10(high))), true, start, length};
  if (axis.high <= axis.low) axis.high = axis.low * 10;
  return axis;
}

std::string Tick(double value) {
  if (value >= 1e9) return absl::StrFormat("%.4gG", value / 1e9);
  if (value >= 1e6) return absl::StrFormat("%.4gM", value / 1e6);
  if (value >= 1e4) return absl::StrFormat("%.4gk", value / 1e3);
  return absl::StrFormat("%.4g", value);
}

std::string Text(double x, double y, absl::string_view anchor,
                 absl::string_view text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2,
                 absl::string_view style) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
      x1, y1, x2, y2, style);
}

std::vector<double> Ticks(const Axis& axis) {
  std::vector<double> ticks;
  if (axis.logarithmic) {
    for (double tick = axis.low; tick <= axis.high * 1.01; tick *= 10) {
      ticks.push_back(tick);
    }
    return ticks;
  }
  for (int i = 0; i <= 5; ++i) {
    ticks.push_back(axis.low + (axis.high - axis.low) * i / 5);
  }
  return ticks;
}

std::string Frame(const Axis& x, const Axis& y, absl::string_view title,
                  absl::string_view x_label, absl::string_view y_label) {
  std::string svg = Text(x.start + x.length / 2, kTop - 25, "middle", title);
  for (const double tick : Ticks(x)) {
    absl::StrAppend(
        &svg, Line(x.At(tick), y.start, x.At(tick), y.start + y.length, "grid"),
        Text(x.At(tick), y.start + 18, "middle", Tick(tick)));
  }
  for (const double tick : Ticks(y)) {
    absl::StrAppend(
        &svg, Line(x.start, y.At(tick), x.start + x.length, y.At(tick), "grid"),
        Text(x.start - 6, y.At(tick) + 4, "end", Tick(tick)));
  }
  absl::StrAppend(&svg,
                  Text(x.start + x.length / 2, y.start + 40, "middle", x_label),
                  Text(x.start, kTop - 8, "middle", y_label));
  return svg;
}

// Whether bandwidth says anything of a case.
bool BoundByMemory(const CaseResult& result) {
  return !absl::StartsWith(result.name, "extend/");
}

absl::string_view FormatOf(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  return parts.size() > 1 ? parts[1] : "";
}

class Colours {
 public:
  explicit Colours(const std::vector<const CaseResult*>& results) {
    for (const CaseResult* result : results) {
      const std::string format(FormatOf(result->name));
      if (std::find(formats_.begin(), formats_.end(), format) ==
          formats_.end()) {
        formats_.push_back(format);
      }
    }
  }

  const char* Of(absl::string_view name) const {
    const size_t index =
        std::find(formats_.begin(), formats_.end(), FormatOf(name)) -
        formats_.begin();
    return kColours[std::min(index, std::size(kColours) - 1)];
  }

  std::string Legend(double y) const {
    std::string svg;
    double x = kLeft;
    for (const std::string& format : formats_) {
      absl::StrAppendFormat(
          &svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x,
          y - 4, Of(absl::StrCat("/", format)));
      absl::StrAppend(&svg, Text(x + 8, y, "start", format));
      x += 130;
    }
    return svg;
  }

 private:
  std::vector<std::string> formats_;
};

std::string Point(double x, double y, const char* colour,
                  const CaseResult& result) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s: %.2f "
      "us, %.0f GB/s, %.1f TFLOP/s</title></circle>\n",
      x, y, colour, Escaped(result.name), result.row.median,
      result.row_gb_per_s(), result.row_tflop_per_s());
}

std::string Roofline(const Report& report, const Colours& colours,
                     const std::vector<const CaseResult*>& results) {
  std::vector<double> intensities = {1};
  std::vector<double> rates = {1};
  for (const CaseResult* result : results) {
    if (result->flops <= 0) continue;
    intensities.push_back(result->flops / static_cast<double>(result->bytes));
    rates.push_back(result->row_tflop_per_s());
  }
  const double compute = report.ceilings.mma_tflop_per_s;
  const double bandwidth = report.ceilings.read_gb_per_s / 1e3;  // TB/s
  if (compute > 0 && bandwidth > 0) {
    intensities.push_back(2 * compute / bandwidth);
    rates.push_back(compute);
  }
  const Axis x = Decades(intensities, kLeft, kPanelWidth);
  const Axis y = Decades(rates, kTop + kPanelHeight, -kPanelHeight);
  std::string svg = Frame(x, y, "Roofline", "flops a byte", "TFLOP/s");
  if (compute > 0 && bandwidth > 0) {
    const double ridge = compute / bandwidth;
    const double from = std::max(x.low, y.low / bandwidth);
    absl::StrAppend(
        &svg,
        Line(x.At(from), y.At(from * bandwidth), x.At(ridge), y.At(compute),
             "roof"),
        Line(x.At(ridge), y.At(compute), x.At(x.high), y.At(compute), "roof"),
        Text(x.At(x.high), y.At(compute) - 6, "end", "f16 mma.sync"));
  }
  for (const CaseResult* result : results) {
    if (result->flops <= 0) continue;
    absl::StrAppend(
        &svg, Point(x.At(result->flops / static_cast<double>(result->bytes)),
                    y.At(result->row_tflop_per_s()), colours.Of(result->name),
                    *result));
  }
  return svg;
}

std::string Bandwidth(const Report& report, const Colours& colours,
                      const std::vector<const CaseResult*>& results) {
  std::vector<double> sizes;
  double highest = 100;
  for (const CaseResult* result : results) {
    if (!BoundByMemory(*result)) continue;
    sizes.push_back(static_cast<double>(result->bytes));
    highest = std::max(highest, result->row_gb_per_s());
  }
  for (const StreamPoint& point : report.ceilings.stream) {
    sizes.push_back(static_cast<double>(point.bytes));
    highest = std::max(highest, point.gb_per_s);
  }
  highest = std::max(
      {highest, report.ceilings.read_gb_per_s, report.ceilings.copy_gb_per_s});
  const Axis x = Decades(sizes, 2 * kLeft + kPanelWidth + kGap, kPanelWidth);
  const Axis y = {0, std::ceil(highest / 500) * 500, false, kTop + kPanelHeight,
                  -kPanelHeight};
  std::string svg =
      Frame(x, y, "Bandwidth against size", "bytes of a launch", "GB/s");
  // The names at either end: the two may lie close together.
  const auto roof = [&](double value, double at, absl::string_view anchor,
                        absl::string_view name) {
    if (value <= 0) return;
    absl::StrAppend(
        &svg,
        Line(x.start, y.At(value), x.start + x.length, y.At(value), "roof"),
        Text(at, y.At(value) - 4, anchor, name));
  };
  roof(report.ceilings.read_gb_per_s, x.start + 4, "start", "read");
  roof(report.ceilings.copy_gb_per_s, x.start + x.length, "end", "copy");
  std::string path;
  for (const StreamPoint& point : report.ceilings.stream) {
    absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ",
                          x.At(static_cast<double>(point.bytes)),
                          y.At(point.gb_per_s));
  }
  if (!path.empty()) {
    absl::StrAppend(&svg, "<polyline class=\"stream\" points=\"", path,
                    "\"/>\n");
  }
  for (const CaseResult* result : results) {
    if (!BoundByMemory(*result)) continue;
    absl::StrAppend(&svg, Point(x.At(static_cast<double>(result->bytes)),
                                y.At(result->row_gb_per_s()),
                                colours.Of(result->name), *result));
  }
  return svg;
}

}  // namespace

std::string ToSvg(const Report& report) {
  std::vector<const CaseResult*> results;
  for (const CaseResult& result : report.results) {
    if (result.error.empty() && result.row.median > 0 && result.bytes > 0) {
      results.push_back(&result);
    }
  }
  const Colours colours(results);
  const double width = 2 * (kLeft + kPanelWidth) + kGap + 20;
  const double height = kTop + kPanelHeight + kBottom + kLegend;
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" "
                      "width=\"%.0f\" height=\"%.0f\" "
                      "viewBox=\"0 0 %.0f %.0f\">\n",
                      width, height, width, height),
      "<style>text{font:12px sans-serif;fill:#222}"
      ".grid{stroke:#ddd}.roof{stroke:#222;stroke-width:1.5}"
      ".stream{fill:none;stroke:#999;stroke-dasharray:4 3}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      Text(kLeft, 16, "start",
           absl::StrCat(report.gpu, " ", report.measured_at)),
      Roofline(report, colours, results), Bandwidth(report, colours, results),
      colours.Legend(kTop + kPanelHeight + kBottom + 10), "</svg>\n");
}

}  // namespace kvforge::bench
