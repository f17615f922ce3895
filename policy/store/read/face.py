"""Reading the record: queries, history figures, reports, SQL of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy import lazy
from policy.store.faces import Face, reads, streams

if TYPE_CHECKING:
    from policy.store import cluster_identity as identities
    from policy.store import kept, outcomes
    from policy.store.read import (
        answered,
        evictions,
        figures,
        history,
        hits,
        nominated,
        observed,
        queries,
        reports,
        rule_counts,
        runs,
        tables,
    )
    from policy.store.record import calls, environments, keys, schedulers, sessions, simulating
else:  # a list of decisions should not wait for what reads sessions, reports or observations
    identities = lazy.Functions("policy.store.cluster_identity")
    kept = lazy.Functions("policy.store.kept")
    outcomes = lazy.Functions("policy.store.outcomes")
    answered = lazy.Functions("policy.store.read.answered")
    evictions = lazy.Functions("policy.store.read.evictions")
    figures = lazy.Functions("policy.store.read.figures")
    history = lazy.Functions("policy.store.read.history")
    hits = lazy.Functions("policy.store.read.hits")
    nominated = lazy.Functions("policy.store.read.nominated")
    observed = lazy.Functions("policy.store.read.observed")
    queries = lazy.Functions("policy.store.read.queries")
    reports = lazy.Functions("policy.store.read.reports")
    rule_counts = lazy.Functions("policy.store.read.rule_counts")
    runs = lazy.Functions("policy.store.read.runs")
    tables = lazy.Functions("policy.store.read.tables")
    calls = lazy.Functions("policy.store.record.calls")
    environments = lazy.Functions("policy.store.record.environments")
    keys = lazy.Functions("policy.store.record.keys")
    schedulers = lazy.Functions("policy.store.record.schedulers")
    sessions = lazy.Functions("policy.store.record.sessions")
    simulating = lazy.Functions("policy.store.record.simulating")


class ReadFace(Face):
    """What was recorded: single decisions and sessions, lists, and what reports are made of."""

    decision = reads(queries.decision)
    decision_row = reads(queries.decision_row)
    decisions = reads(queries.decisions)
    decision_ids = reads(queries.decision_ids)
    decisions_by_id = reads(queries.decisions_by_id)
    known_decisions = reads(queries.known_decisions)
    frozen = reads(queries.frozen)
    leaving_already = reads(queries.leaving_already)
    victims_of = reads(queries.victims_of)
    outcomes_of = reads(outcomes.outcomes_of)
    outcomes_of_sessions = reads(outcomes.outcomes_of_sessions)
    outcomes_at = reads(outcomes.outcomes_at)
    call_decided = reads(calls.call_decided)
    rule_set = reads(queries.rule_set)
    kept_simulations = reads(kept.kept_simulations)
    real_clusters = reads(kept.real_clusters)
    key_is_taken = reads(keys.is_taken)
    nominations = reads(queries.nominations)
    nominated_to = reads(nominated.nominated_to)
    unseen_nominations = reads(nominated.unseen_nominations)
    runs_of = reads(runs.runs_of)
    workloads_of = reads(runs.workloads_of)
    observed_evictions = reads(runs.observed_evictions)
    session_evictions = reads(runs.session_evictions)
    evictions_on = reads(runs.evictions_on)
    session = reads(sessions.session)
    session_row = reads(sessions.session_row)
    session_steps = reads(sessions.session_steps)
    step_count = reads(sessions.step_count)
    evicted_in = reads(sessions.evicted_in)
    effects_in = reads(sessions.effects_in)
    effect_counts_in = reads(sessions.effect_counts_in)
    sessions = reads(sessions.sessions)
    simulations = reads(simulating.simulations)
    simulated_clusters = reads(simulating.simulated_clusters)
    simulation_document = reads(simulating.simulation_document)
    simulation_documents = reads(simulating.simulation_documents)
    environment = reads(environments.environment)
    active_rule_set = reads(environments.active)
    activations = reads(environments.activations)
    rollback_target = reads(environments.rollback_target)
    environments = reads(environments.environments)
    scheduler_rules = reads(schedulers.scheduler_rules)
    schedulers = reads(schedulers.schedulers)
    past_preemptions = streams(evictions.past_preemptions)
    evictions = reads(evictions.evictions)
    hits = reads(hits.hits)
    past_nominations = reads(reports.past_nominations)
    tries_while_nominated = reads(reports.tries_while_nominated)
    rule_sets_used = reads(reports.rule_sets_used)
    rule_uses = reads(reports.rule_uses)
    rule_counts = reads(rule_counts.rule_counts)
    rows = streams(tables.rows)
    rows_by_day = streams(tables.rows_by_day)
    observations = reads(observed.observations)
    observation = reads(observed.observation)
    known_events = reads(observed.known_events)
    known_victims = reads(observed.known_victims)
    situation = reads(observed.situation)
    answered = reads(answered.answered)
    follow_positions = reads(observed.follow_positions)
    cluster_identity = reads(identities.known)
    gaps = reads(observed.gaps)
    history = reads(history.figures)
    preemptions_by_hour = reads(figures.preemptions_by_hour)
    decisions_by_day = reads(figures.decisions_by_day)
    days_with_decisions = reads(figures.days_with_decisions)
    evicted_within = reads(figures.evicted_within)
    outcomes_within = reads(figures.outcomes_within)
    nominated_pods = reads(figures.nominated_pods)
    broken_budgets = reads(figures.broken_budgets)
    newest_verdicts = reads(figures.newest_verdicts)
    state_ages = reads(figures.state_ages)
