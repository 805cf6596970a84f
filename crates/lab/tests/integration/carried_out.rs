//! Plans that are carried out on models, where nothing is served.

use headpond_lab::{
    Answer, Cell, Course, Ending, Plan, Results, Surroundings, Watcher, answers, builtin,
};
use headpond_whatif::rounds::Round;

struct Nobody;

impl Surroundings for Nobody {
    fn export_of(&self, volume: &str) -> Result<String, String> {
        Err(format!("{volume} is not served"))
    }

    fn setting_of(&self, volume: &str, _: &str) -> Result<String, String> {
        Err(format!("{volume} is not served"))
    }

    fn set(&self, volume: &str, _: &str, _: &str) -> Result<(), String> {
        Err(format!("{volume} is not served"))
    }
}

struct Silent;

impl Watcher for Silent {
    fn begins(&mut self, _: &Cell) {}
    fn round(&mut self, _: &Cell, _: u32, _: &Round) {}
    fn ends(&mut self, _: &Cell, _: &Ending) {}
    fn prepares(&mut self, _: &str) {}
}

/// A plan of the program's, with less of it where the whole takes long.
pub fn carried_out(name: &str, less: impl FnOnce(&mut Plan)) -> (Results, Vec<Answer>) {
    let mut plan = Plan::parse(builtin::text(name).unwrap()).unwrap();
    less(&mut plan);
    carried_out_plan(plan)
}

pub fn carried_out_plan(plan: Plan) -> (Results, Vec<Answer>) {
    let folder = headpond_testkit::tempdir();
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Silent).unwrap();
    let results = Results::read(&out).unwrap();
    let answers = answers(&results);
    (results, answers)
}
