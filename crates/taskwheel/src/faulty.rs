//! The binary as the fault harness runs it: the same program, built with the feature `faults`, under a name of its own so that neither
//! takes the other's place.

fn main() -> std::process::ExitCode {
    taskwheel::main()
}
