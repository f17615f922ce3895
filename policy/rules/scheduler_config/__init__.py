"""kube-scheduler's own configuration files, read into rule files."""

from policy.rules.scheduler_config.reading import ConfigError, Profile, chosen, profiles_of
from policy.rules.scheduler_config.translation import Translation, generation_of, translate

__all__ = [
    "ConfigError",
    "Profile",
    "Translation",
    "chosen",
    "generation_of",
    "profiles_of",
    "translate",
]
