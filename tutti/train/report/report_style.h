// The style sheet of report.html.
#pragma once

namespace tutti::train {

constexpr const char* kReportStyle = R"css(
:root{--bg:#f6f6f3;--card:#fff;--ink:#1c1d22;--dim:#6c6e78;--rule:#e4e4df;--main:#2f5fd0;--accent:#c2571a}
@media(prefers-color-scheme:dark){:root{--bg:#15161a;--card:#1e2026;--ink:#e9e9ec;--dim:#9698a3;--rule:#30323b;
--main:#7ea2ff;--accent:#f0995f}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main{max-width:1120px;margin:0 auto;padding:0 24px}
header{padding-top:36px}h1{margin:0;font-size:28px;letter-spacing:-.01em}header p{margin:2px 0 22px;color:var(--dim)}
h2{font-size:18px;margin:34px 0 12px}h3{font-size:14px;margin:0 0 6px;color:var(--dim);font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:14px;margin-bottom:14px}
.tile,figure,.config section,details,.facts section table{background:var(--card);border:1px solid var(--rule);
border-radius:10px}
.tile{padding:14px 16px;display:flex;flex-direction:column}.tile span{color:var(--dim);font-size:13px}
.tile strong{font-size:26px;line-height:1.25;font-variant-numeric:tabular-nums}.tile small{color:var(--dim)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
figure{margin:0;padding:14px 16px 8px}figcaption{display:flex;gap:8px;align-items:baseline;flex-wrap:wrap}
figcaption i{color:var(--dim);font-style:normal;font-size:13px}.legend{margin-left:auto;font-size:12.5px;
color:var(--dim);display:flex;gap:14px}
.key::before{content:"";display:inline-block;width:16px;border-top:2px solid var(--main);vertical-align:middle;
margin-right:5px}.key.faint::before{opacity:.35}.key.second::before{border-color:var(--accent)}.key.reference::before{border-top:2px dashed var(--accent)}
svg{display:block;width:100%;height:auto}svg path{fill:none}
.grid{stroke:var(--rule)}.axis{stroke:var(--dim);opacity:.6}.tick{fill:var(--dim);font-size:11.5px}
svg .line,svg .marked,svg .second{stroke:var(--main);stroke-width:2;stroke-linejoin:round}
svg .second{stroke:var(--accent)}
svg .faint{stroke:var(--main);opacity:.35;stroke-width:1}.dot{fill:var(--main)}
svg .reference{stroke:var(--accent);stroke-width:1.5;stroke-dasharray:6 5}
.empty{color:var(--dim);padding:18px 0;margin:0}
details{padding:10px 16px;margin-bottom:10px}summary{cursor:pointer;color:var(--dim)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0 4px;font:13.5px/1.55 ui-monospace,monospace}
table{border-collapse:collapse;width:100%;font-size:13.5px}th{text-align:left;font-weight:500;color:var(--dim);
padding:3px 12px 3px 0;vertical-align:top;white-space:nowrap}td{padding:3px 0;overflow-wrap:anywhere;
font-variant-numeric:tabular-nums}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:0 14px}
.facts table{display:block;padding:10px 16px}
.experts{text-align:center;margin-top:14px}.experts figcaption{color:var(--dim);font-size:13px;margin-bottom:8px}.experts input{margin:0 1px;accent-color:var(--main)}
.frames>div{display:none}.frames p{margin:6px 0;font-variant-numeric:tabular-nums}.experts svg{max-height:480px}.experts svg path{stroke:none}
.scale{display:flex;flex-wrap:wrap;justify-content:center;gap:4px 14px;font-size:12.5px;color:var(--dim)}.scale b{display:inline-block;width:12px;height:12px;margin-right:5px;
vertical-align:-1px}
.heat0{fill:#000;background:#000}.heat1{fill:#2c4a86;background:#2c4a86}.heat2{fill:#4f7cc4;background:#4f7cc4}.heat3{fill:#93b4e6;background:#93b4e6}
.heat4{fill:#d9d9d2;background:#d9d9d2}.heat5{fill:#f0b37e;background:#f0b37e}.heat6{fill:#df7a34;background:#df7a34}.heat7{fill:#a63a12;background:#a63a12}
.ranks{margin-top:14px}.ranks figcaption{color:var(--dim);font-size:13px;margin-bottom:8px}.ranks svg .grid{stroke:var(--rule)}.ranks table{margin-top:8px;width:auto}.ranks td{padding:2px 14px 2px 0}
.part0,.span0{fill:#4f7cc4;background:#4f7cc4}.part1,.span1{fill:#df7a34;background:#df7a34}.part2,.span2{fill:#7a9a3a;background:#7a9a3a}.part3,.span3{fill:#c9a227;background:#c9a227}
.part4,.span4{fill:#a63a12;background:#a63a12}.part5,.span5{fill:#8d8f99;background:#8d8f99}
.wide{overflow-x:auto}.cells{fill:var(--dim);stroke:none}
@media(max-width:640px){header,main{padding:0 12px}th{white-space:normal}.frames{overflow-x:auto}.wide svg,.frames svg{min-width:640px}.facts table,.config section{overflow-x:auto}
.ranks .spans,.spans tbody,.spans tr,.spans th{display:block;width:100%}.spans tr:first-child{display:none}
.ranks .spans td{display:flex;justify-content:space-between;padding:2px 0}.spans td::before{content:attr(data-name);color:var(--dim)}}
.config table{table-layout:fixed}.config th{width:50%}
.config{columns:2 460px;column-gap:14px;padding-bottom:48px}.config section{break-inside:avoid;padding:12px 16px;
margin-bottom:14px}
)css";

}  // namespace tutti::train
