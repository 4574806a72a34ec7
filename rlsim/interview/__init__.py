"""Interview answers on RL systems design whose numbers are computed at the moment of asking, and exercises."""

from rlsim.interview.answer import Answer, ask, sheet
from rlsim.interview.bank import LANGUAGES, TOPICS, Question, find, questions

__all__ = ["LANGUAGES", "TOPICS", "Answer", "Question", "ask", "find", "questions", "sheet"]
