//! The UPS and the fans.

use api::{FanStatus, UpsStatus};
use maud::{Markup, html};

use super::format::{or_dash, span};

/// The UPS and the fans, as far as there are any.
pub(super) fn section(ups: Option<&UpsStatus>, fans: Option<&FanStatus>) -> Markup {
    html! {
        @if let Some(ups) = ups { (ups_facts(ups)) }
        @if let Some(fans) = fans { (fan_table(fans)) }
    }
}

fn ups_facts(ups: &UpsStatus) -> Markup {
    let is_well = ups.error.is_none() && ups.battery_seconds.is_none() && !ups.are_pools_closed;
    let class = if is_well { "ok" } else { "watch" };
    html! {
        h2 { "UPS " span class={ "badge " (class) } { (ups.stage.as_str()) } }
        dl class="facts" {
            div { dt { "Server" } dd { (ups.server) ", " (ups.role) } }
            @if let Some(reading) = &ups.reading {
                div { dt { "Status" } dd { (reading.status) } }
                div { dt { "Charge" } dd {
                    @if let Some(charge) = reading.charge {
                        meter min="0" max="100" low="30" value=(charge) { (charge) " %" } " " (charge) " %"
                    } @else { "-" }
                } }
                div { dt { "Lasts" } dd { (or_dash(reading.runtime.map(span))) } }
                div { dt { "Load" } dd { (or_dash(reading.load.map(|load| format!("{load} %")))) } }
            }
            @if let Some(why) = &ups.error { div { dt { "Error" } dd class="complaint" { (why) } } }
        }
    }
}

fn fan_table(status: &FanStatus) -> Markup {
    let celsius = |value: Option<f64>| or_dash(value.map(|celsius| format!("{celsius:.0} °C")));
    html! {
        h2 { "Fans" }
        div class="scroll" tabindex="0" { table class="dense" {
            thead { tr { th { "Fan" } th class="number" { "Speed" } th class="number" { "rpm" } } }
            tbody {
                @for fan in &status.fans {
                    tr {
                        td { (fan.name) @if let Some(why) = &fan.error { " " span class="complaint" { (why) } } }
                        td class="number" { (or_dash(fan.percent.map(|percent| format!("{percent} %")))) }
                        td class="number" { (or_dash(fan.rpm)) }
                    }
                }
            }
        } }
        p class="hint" { "Hottest drive " (celsius(status.drive)) ", processor " (celsius(status.cpu)) }
        @for fault in &status.faults { p class="complaint" { "Full speed: " (fault) } }
    }
}
