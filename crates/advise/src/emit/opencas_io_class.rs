//! Open CAS's file of I/O classes: what of the advice is about single requests.
//!
//! It takes no comments, and so they are told beside it.

use super::wanted::{Named, Wanted};
use super::{Cache, Emission, Fit, Script, fit, script};
use crate::advice::Advice;
use headpond_cache::CutoffPolicy;
use headpond_cache::classes::Classes;
use headpond_volume::ClassSetting;

struct IoClass;

/// Writes the file.
pub(super) fn file(advice: &Advice, wanted: &Wanted) -> Emission {
    let told = |setting| fit::of(&IoClass, setting, wanted).told(setting);
    let mut remarks = script::head("Open CAS", advice, &wanted.occasion);
    remarks.extend(wanted.settings.iter().map(told));
    remarks.push(match wanted.has_cache {
        true => "the rest is for casadm: --emit casadm".to_owned(),
        false => "do not cache: every request goes past it".to_owned(),
    });
    Emission { text: classes(wanted).to_csv(), remarks }
}

fn classes(wanted: &Wanted) -> Classes {
    let cutoff = wanted.cache.seq_cutoff;
    let past = "[[class]]\nid = 0\npass_through = true\n";
    let text = match cutoff.policy {
        _ if !wanted.has_cache => past.to_owned(),
        _ if wanted.cache.classes != ClassSetting::None => {
            return wanted.cache.classes.classes().as_ref().clone();
        }
        CutoffPolicy::Always => format!(
            "{past}[[class]]\nid = 1\nwhen = \"request_size:le:{}&done\"\npriority = 1\n",
            cutoff.threshold.bytes()
        ),
        CutoffPolicy::Full | CutoffPolicy::Never => "[[class]]\nid = 0\n".to_owned(),
    };
    Classes::parse(&text).expect("it is written above")
}

impl Cache for IoClass {
    fn name(&self) -> &'static str {
        "a file of classes"
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        let has_classes = wanted.cache.classes != ClassSetting::None;
        match (setting.key.as_str(), wanted.cache.seq_cutoff.policy) {
            ("classes", _) => Fit::same("as it is"),
            ("seq-cutoff" | "seq-cutoff.threshold", CutoffPolicy::Always) if !has_classes => {
                Fit::nearly("single requests that are longer go past; streams of short ones do not")
            }
            ("seq-cutoff", CutoffPolicy::Never) => Fit::same("no request is too long"),
            ("seq-cutoff", CutoffPolicy::Full) => {
                Fit::not("classes do not look at how full the cache is")
            }
            _ => Fit::not("classes say which requests enter, and nothing else"),
        }
    }

    fn write(&self, _wanted: &Wanted, _script: &mut Script) {}
}
