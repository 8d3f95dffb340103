// Package ring releases a model onto a multi-host serving ring: a ring plan is read strictly and checked whole, guards
// compare it with what the engine shows of itself, a generation is durable before the first command leaves, the stages
// are loaded with every one of them heard out, and the catalog is switched only after a canary that no first success
// can fool. A load that stopped in the middle is finished or taken back from what is found.
//
// The lane speaks with engines through Engine alone. Agents report facts; placement, success over all stages, rollback
// and cleanup are the caller's. DESIGN.md names the invariants and their tests.
package ring
